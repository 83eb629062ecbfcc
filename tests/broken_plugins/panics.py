"""What it raises is no Exception, as the panics of compiled modules are none."""


class Panic(BaseException):
    pass


raise Panic("index out of bounds:\n  the len is 3")
