"""The Jinja environment for chat templates: what transformers 5 sets up, plus origins and bounds.

Same sandbox (immutable), block trimming, loop controls, ``generation`` tag, ``tojson``, ``raise_exception``,
``strftime_now``, ``dict`` and ``namespace`` as ``transformers.utils.chat_template_utils``; the text of a rendering must
not differ. What is ours: `Traced` strings survive macros, set blocks, ``~``, filters and methods, and templates run
inside `antiphon.engine.limits`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, MutableMapping
from datetime import datetime
from string import Formatter
from types import BuiltinMethodType, MethodType
from typing import Any, NoReturn, cast

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame, optimizeconst
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.utils import Namespace
from markupsafe import Markup

from antiphon.engine import limits
from antiphon.engine.filters import (
    FILTERS,
    WIDENING,
    call_str,
    check_format,
    check_width,
    modulo,
    multiply,
    own_arguments,
    power,
)
from antiphon.engine.provenance import (
    MIXED,
    SpanTuple,
    Traced,
    TracedDict,
    coarse,
    concat,
    text_of,
    traced,
    traced_whole,
)
from antiphon.engine.safe_text import SafeTraced, escape, is_safe, mark_safe, plain
from antiphon.errors import TemplateInvalid

_TEMPLATES_KEPT = 256
_DICT_NAMES = frozenset(dir(TracedDict))
_MACRO_NAMES = frozenset(("caller", "kwargs", "varargs"))
# Methods of str that give origins by themselves and that a template may call without the sandbox's questions.
_STR_NAMES = frozenset(name for name in dir(str) if name[0] != "_") - {"format", "format_map"}


@functools.lru_cache(maxsize=_TEMPLATES_KEPT)
def compile_template(source: str) -> jinja2.Template:
    """Compile a chat template; compiled templates are kept.

    Raises:
        TemplateInvalid: ``source`` is not valid Jinja.
    """
    try:
        return _environment().from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise TemplateInvalid(
            f"The chat template is not valid Jinja: {error.message} (line {error.lineno}); correct the template."
        ) from error
    except SyntaxError as error:  # Python's, of what Jinja made: a loop control outside of its loop
        raise TemplateInvalid(
            f"The chat template is no valid program: {error.msg}; correct the template."
        ) from error
    except RecursionError as error:
        raise TemplateInvalid(
            "The chat template is nested too deeply to be compiled; simplify it."
        ) from error


@functools.lru_cache(maxsize=1)
def _environment() -> ChatEnvironment:
    return ChatEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[GenerationTag, loopcontrols],
        finalize=text_of,
    )


class GenerationTag(Extension):
    """``{% generation %}``: transformers marks the assistant's text with it; the text is what stands inside."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> nodes.Stmt:
        """Parse the tag into a scope that prints its body: what is set inside stays inside, as in a call block.

        transformers makes a call block of it, and every call costs. It is made here only where its being one can be
        told: loop controls inside can't reach the loop, and the names that a macro has stand for something else.
        """
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        scope = nodes.Scope(body).set_lineno(line)
        if not any(
            not isinstance(node, nodes.Name) or node.name in _MACRO_NAMES
            for node in scope.find_all((nodes.Break, nodes.Continue, nodes.Name))
        ):
            return cast("nodes.Stmt", scope)
        call = self.call_method("_body", [nodes.ContextReference()])
        return cast("nodes.Stmt", nodes.CallBlock(call, [], [], body).set_lineno(line))

    def _body(self, context: Context, caller: Macro) -> Any:
        return cast("ChatEnvironment", self.environment).call(context, caller)


class ChatCodeGenerator(CodeGenerator):
    """Generates code that keeps origins in ``~`` and sums, and that counts its work."""

    @optimizeconst
    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        """``a ~ b``: Jinja's own functions would join to a plain string; which one is asked as it asks."""
        function = "environment.concat_values"
        if frame.eval_ctx.volatile:
            function = f"(environment.concat_safe if context.eval_ctx.volatile else {function})"
        elif frame.eval_ctx.autoescape:
            function = "environment.concat_safe"
        self._call(function, node.nodes, frame)

    @optimizeconst
    def visit_Add(self, node: nodes.BinExpr, frame: Frame) -> None:  # noqa: N802
        """``a + b + c``: added in one go, so that a long sum of strings is copied once."""
        terms: list[nodes.Node] = []
        left: nodes.Node = node
        while isinstance(left, nodes.Add):
            terms.append(left.right)
            left = left.left
        terms.append(left)
        self._call("environment.add_values", terms[::-1], frame)

    def visit_For(self, node: nodes.For, frame: Frame) -> None:  # noqa: N802
        """Loops count their iterations."""
        node.iter = _environment_call("watched", [node.iter], node.lineno)
        if node.recursive:
            step = nodes.ExprStmt(_environment_call("step", [], node.lineno), lineno=node.lineno)
            node.body = [step, *node.body]
        super().visit_For(node, frame)

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        """What is printed where ``autoescape`` is on is escaped with its origins."""
        if frame.eval_ctx.volatile:
            self.write("(environment.escape if context.eval_ctx.autoescape else str)(")
        elif frame.eval_ctx.autoescape:
            self.write("environment.escape(")
        else:
            self.write("str(")
        if finalize.src is not None:
            self.write(finalize.src)

    def visit_Assign(self, node: nodes.Assign, frame: Frame) -> None:  # noqa: N802
        """Assigned values are checked for their size: nothing can grow without being assigned."""
        if not isinstance(node.node, (nodes.Const, nodes.Name, nodes.Getattr, nodes.Getitem)):
            node.node = _environment_call("checked", [node.node], node.lineno)
        super().visit_Assign(node, frame)

    def visit_Call(  # type: ignore[override]  # noqa: N802
        self, node: nodes.Call, frame: Frame, **options: Any
    ) -> None:
        """Calls that this generator has put in go straight to the environment's method."""
        if isinstance(node.node, nodes.EnvironmentAttribute) and node.node.name in _DIRECT:
            self._call(f"environment.{node.node.name}", node.args, frame, tupled=False)
        else:
            super().visit_Call(node, frame, **options)

    def _call(self, function: str, arguments: list[Any], frame: Frame, tupled: bool = True) -> None:
        self.write(f"{function}((" if tupled else f"{function}(")
        for argument in arguments:
            self.visit(argument, frame)
            self.write(", ")
        self.write("))" if tupled else ")")


_DIRECT = frozenset({"watched", "checked", "step"})


def _environment_call(name: str, arguments: list[Any], line: int) -> nodes.Call:
    function = nodes.EnvironmentAttribute(name, lineno=line)
    return nodes.Call(function, arguments, [], None, None, lineno=line)


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox that chat templates run in."""

    code_generator_class = ChatCodeGenerator
    intercepted_binops = frozenset({"*", "**", "%"})
    concat = staticmethod(concat)
    watched = staticmethod(limits.watched)
    checked = staticmethod(limits.checked)
    step = staticmethod(limits.step)
    escape = staticmethod(escape)
    mark_safe = staticmethod(mark_safe)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.filters.update(FILTERS)
        self.globals.update(
            raise_exception=_raise_exception,
            strftime_now=_strftime_now,
            dict=TemplateDict(),
            namespace=TemplateNamespace,
        )
        self.binop_table.update({"*": multiply, "**": power, "%": modulo})

    def _generate(self, *args: Any, **options: Any) -> str:
        """Generate a template's code; by the name ``Markup`` it finds what keeps origins."""
        imports, rest = super()._generate(*args, **options).split("\n", 1)
        # On the line of the imports: Jinja counts the lines after it to name those of the template.
        return f"{imports}; Markup = environment.mark_safe\n{rest}"

    def make_globals(self, d: MutableMapping[str, Any] | None) -> MutableMapping[str, Any]:
        """Return the globals of a template as one dict: each rendering copies them, a chain of dicts slowly."""
        return {**self.globals, **(d or {})}

    @staticmethod
    def concat_values(values: tuple[Any, ...]) -> str:
        """``a ~ b``: what ``str`` gives of each, joined."""
        pieces = [text_of(value) for value in values]
        limits.check_size(sum(map(len, pieces)))
        return concat(pieces)

    @staticmethod
    def concat_safe(values: tuple[Any, ...]) -> str:
        """``a ~ b`` where ``autoescape`` is on: escaped if one of them is marked safe."""
        joined = ChatEnvironment.concat_values(values)
        return mark_safe("").join(map(text_of, values)) if any(map(is_safe, values)) else joined

    @staticmethod
    def add_values(values: tuple[Any, ...]) -> Any:
        """``a + b + …``: strings are joined in one go, anything else is added from the left."""
        spans: list[SpanTuple] = []
        position = 0
        for value in values:
            kind = value.__class__
            if kind is Traced:
                for start, end, origin in value._antiphon_spans:
                    spans.append((start + position, end + position, origin))
            elif kind is not str:
                return functools.reduce(operator.add, values)
            position += len(value)
        text = "".join(values)
        return traced(text, tuple(spans)) if spans else text

    def getattr(self, obj: Any, attribute: str) -> Any:
        """``obj.attribute``, with short ways for what messages are made of."""
        kind = obj.__class__
        if kind is TracedDict and attribute not in _DICT_NAMES:
            try:
                return obj[attribute]
            except KeyError:
                return self.undefined(obj=obj, name=attribute)
        if kind is Traced and attribute in _STR_NAMES:
            return getattr(obj, attribute)
        if (kind is TemplateNamespace or kind is LoopContext) and attribute[0] != "_":
            try:
                return getattr(obj, attribute)
            except AttributeError:
                return self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Call a method or function for a template."""
        kind = __obj.__class__
        if kind is MethodType and isinstance(__obj.__self__, Traced):
            if __obj.__name__ in WIDENING:
                check_width(__obj.__self__, args)
            return limits.checked(__obj(*args, **own_arguments(kwargs)))
        if kind is BuiltinMethodType:
            owner = __obj.__self__.__class__
            if owner is TracedDict:
                return __obj(*args, **own_arguments(kwargs))
            if owner is str:
                return limits.checked(call_str(__obj, args, own_arguments(kwargs)))
        elif kind is Macro:
            limits.step()
            if __context.eval_ctx.autoescape:
                # Told not to mark its text as safe, it leaves that to `mark_safe`.
                unescaped = nodes.EvalContext(__self)
                return mark_safe(__obj(unescaped, *args, **own_arguments(kwargs)))
        result = super().call(__context, __obj, *args, **kwargs)
        # What Jinja itself marks safe (a block called by its name) has lost its origins.
        return (
            mark_safe(traced_whole(plain(result), MIXED)) if isinstance(result, Markup) else result
        )

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Replace ``str.format`` by one that keeps origins, inside the sandbox."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        if isinstance(value.__self__, SafeTraced):
            return self._wrap_safe_format(value)
        template, mapped = value.__self__, value.__name__ == "format_map"
        formatter = TracedFormatter(self)

        @functools.wraps(wrapped)
        def format_(*args: Any, **kwargs: Any) -> str:
            if mapped:
                if kwargs or len(args) != 1:
                    return wrapped(*args, **kwargs)  # raises
                return formatter.vformat(template, (), args[0])
            return formatter.vformat(template, args, kwargs)

        return format_

    def _wrap_safe_format(self, value: Any) -> Callable[..., str]:
        """Fields are escaped; where each of them stands is not followed."""
        text = value.__self__
        escaping = super().wrap_str_format(getattr(Markup(plain(text)), value.__name__))
        assert escaping is not None

        @functools.wraps(value)
        def format_(*args: Any, **kwargs: Any) -> str:
            return mark_safe(
                coarse(plain(escaping(*args, **kwargs)), text, *args, *kwargs.values())
            )

        return format_


class TracedFormatter(SandboxedFormatter):
    """The sandbox's formatter, joining fields with their origins."""

    def vformat(self, format_string: str, args: Any, kwargs: Mapping[str, Any]) -> str:
        """Format; only fields without a format spec or conversion keep origins of a part of the text."""
        text = super().vformat(format_string, args, kwargs)
        limits.check_size(len(text))
        if isinstance(format_string, Traced):
            return coarse(text, format_string, *args, *kwargs.values())
        pieces: list[str] = []
        number = 0
        for literal, name, spec, conversion in Formatter.parse(self, format_string):
            pieces.append(literal)
            if name is None:
                continue
            if name == "" or name[0] in ".[":
                name, number = f"{number}{name}", number + 1
            value, _ = self.get_field(name, args, kwargs)
            if isinstance(value, Traced) and not spec and conversion in (None, "s"):
                pieces.append(value)
            else:
                if "{" in (spec or ""):
                    return coarse(text, format_string, *args, *kwargs.values())
                converted = self.convert_field(value, conversion)
                pieces.append(coarse(self.format_field(converted, spec or ""), value))
        result = concat(pieces)
        return result if result == text else coarse(text, format_string, *args, *kwargs.values())

    def format_field(self, value: Any, format_spec: str) -> Any:
        """Format one value, in a width that is allowed."""
        check_format(format_spec)
        return super().format_field(value, format_spec)


class TemplateDict:
    """``dict(...)`` in a template, without the class itself."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        """``dict.fromkeys``."""
        return dict.fromkeys(*args, **kwargs)


class TemplateNamespace(Namespace):
    """``namespace(...)`` that refuses names with a leading underscore, as transformers' does."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, args = args[0], args[1:]
        attributes = dict(*args, **kwargs)
        for name in attributes:
            TemplateNamespace._check(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        TemplateNamespace._check(name)
        super().__setitem__(name, value)

    @staticmethod
    def _check(name: Any) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(
                f"Namespace attributes of chat templates must not start with an underscore, as {name!r} does."
            )


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.exceptions.TemplateError(message)


def _strftime_now(format: str) -> str:
    return coarse(datetime.now().strftime(format), format)
