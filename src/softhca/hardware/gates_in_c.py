"""What Amaranth's simulator writes in Python for a process of a design, as a function in C.

The text is a small part of Python: assignments, ``match``, ``if``, integers without end.  Here each
expression's least and greatest value follow from the masks that Amaranth puts around it, and with them the
type in C: 64 bits, or 128 where a value or a step on the way to it needs more.  What is of another kind, or
needs still more bits, is refused (`Untranslatable`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import NamedTuple

MOST = 1 << 126


class Untranslatable(Exception):
    """A process that is not what is known here."""


class Value(NamedTuple):
    """An expression in C, and between which values it is."""

    text: str
    low: int
    high: int

    @property
    def wide(self) -> bool:
        """Whether 64 bits are too few."""
        return self.low < -(1 << 63) or self.high >= 1 << 63


def _of(text: str, low: int, high: int) -> Value:
    if low < -MOST or high >= MOST:
        raise Untranslatable(f"too many bits: {text[:60]}")
    return Value(text, low, high)


def _literal(number: int) -> Value:
    if -(1 << 63) < number < 1 << 63:
        return Value(f"{number}LL", number, number)
    if number < 0:
        positive = _literal(~number)
        return _of(f"(~{positive.text})", number, number)
    high, low = divmod(number, 1 << 64)
    return _of(f"((W)((UW){high}ULL << 64 | {low}ULL))", number, number)


_COMPARISONS: dict[type, str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip


def _corners(function: Callable[[int, int], int], left: Value, right: Value) -> tuple[int, int]:
    found = [function(one, other) for one in left[1:] for other in right[1:]]
    return min(found), max(found)


def _bits(low: int, high: int) -> int:
    """Of all values between both, without a sign."""
    return max(low if low >= 0 else ~low, high if high >= 0 else ~high).bit_length()


class Translator:
    """Of processes, one after the other.  ``ranges``: least and greatest value of each slot, a signal or the
    words of a memory."""

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        self._ranges = ranges
        self._known: dict[str, Value] = {}
        self._lines: list[str] = []

    @staticmethod
    def literal(number: int) -> str:
        """A number as a constant."""
        return _literal(number).text

    def function(self, name: str, text: str) -> str:
        """The function in C of a text that begins with ``def run():``."""
        self._known, self._lines = {}, []
        (run,) = ast.parse(text).body
        if not isinstance(run, ast.FunctionDef):
            raise Untranslatable(text[:60])
        self._block(run.body)
        declared = "".join(
            f"  {'W' if value.wide else 'N'} {variable} = 0;\n" for variable, value in self._known.items()
        )
        return f"static void {name}(struct gates *g) {{\n{declared}" + "\n".join(self._lines) + "\n}\n"

    # statements

    def _block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            handler = getattr(self, f"_{type(statement).__name__}", None)
            if handler is None:
                raise Untranslatable(ast.unparse(statement)[:60])
            handler(statement)

    def _Pass(self, statement: ast.Pass) -> None:
        self._lines.append("  ;")

    def _store(self, target: ast.expr, value: Value) -> None:
        if not isinstance(target, ast.Name):
            raise Untranslatable(ast.unparse(target))
        name = target.id
        low, high = value.low, value.high
        if name in self._known:
            low, high = min(low, self._known[name].low), max(high, self._known[name].high)
        self._known[name] = Value(name, low, high)
        self._lines.append(f"  {name} = {value.text};")

    def _Assign(self, statement: ast.Assign) -> None:
        (target,) = statement.targets
        value = self._value(statement.value)
        if isinstance(target, ast.Name) and target.id.startswith("next_"):
            low, high = self._ranges[int(target.id[5:])]
            if value.low < low or value.high > high:
                raise Untranslatable(f"{target.id} may be {value.low} … {value.high}")
            self._known[target.id] = Value(target.id, low, high)
        self._store(target, value)

    def _AugAssign(self, statement: ast.AugAssign) -> None:
        value = ast.BinOp(ast.Name(statement.target.id), statement.op, statement.value)  # type: ignore[union-attr]
        self._store(statement.target, self._value(value))

    def _Expr(self, statement: ast.Expr) -> None:
        call = statement.value
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            raise Untranslatable(ast.unparse(statement)[:60])
        slot = self._slot(call.func.value)
        given = [self._value(each) for each in call.args]
        if call.func.attr == "update":
            value, *mask = given
            whole = not mask or self._covers(slot, mask[0])
            if whole:
                self._lines.append(f"  set(g, {slot}, {value.text});")
            else:
                self._lines.append(f"  part(g, {slot}, {value.text}, {mask[0].text});")
        elif call.func.attr == "write":
            address, data, enabled = given
            self._lines.append(
                f"  if ({enabled.text}) write_word(g, {slot}, {address.text}, {data.text}, {enabled.text});"
            )
        else:
            raise Untranslatable(ast.unparse(statement)[:60])

    def _covers(self, slot: int, mask: Value) -> bool:
        low, high = self._ranges[slot]
        return mask.low == mask.high and all(each & mask.low == each for each in (high, low, high | low))

    def _If(self, statement: ast.If) -> None:
        self._lines.append(f"  if ({self._value(statement.test).text}) {{")
        self._block(statement.body)
        self._lines.append("  }")
        if statement.orelse:
            self._lines.append("  else {")
            self._block(statement.orelse)
            self._lines.append("  }")

    def _Match(self, statement: ast.Match) -> None:
        subject = self._value(statement.subject)
        word = "if"
        for case in statement.cases:
            if case.guard is not None:  # ``case _ if False``
                condition = "0"
            elif isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None:
                condition = "1"
            else:
                patterns = case.pattern.patterns if isinstance(case.pattern, ast.MatchOr) else [case.pattern]
                values = [self._value(pattern.value) for pattern in patterns]  # type: ignore[attr-defined]
                condition = " || ".join(f"{subject.text} == {value.text}" for value in values)
            self._lines.append(f"  {word} ({condition}) {{")
            self._block(case.body)
            self._lines.append("  }")
            word = "else if"

    # expressions

    def _slot(self, node: ast.expr) -> int:
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            return int(str(node.slice.value))
        raise Untranslatable(ast.unparse(node)[:60])

    def _value(self, node: ast.expr) -> Value:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return _literal(int(node.value))
        if isinstance(node, ast.Name):
            return self._known[node.id]
        if isinstance(node, ast.Attribute):
            return self._state(self._slot(node.value), node.attr)
        if isinstance(node, ast.UnaryOp):
            return self._unary(node)
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.Compare):
            (other,), (operator,) = node.comparators, node.ops
            left, right = _alike(self._value(node.left), self._value(other))
            return Value(f"({left.text} {_COMPARISONS[type(operator)]} {right.text})", 0, 1)
        if isinstance(node, ast.BoolOp):
            word = " || " if isinstance(node.op, ast.Or) else " && "
            return Value("(" + word.join(self._value(each).text for each in node.values) + ")", 0, 1)
        if isinstance(node, ast.Call):
            return self._call(node)
        raise Untranslatable(ast.unparse(node)[:60])

    def _state(self, slot: int, word: str) -> Value:
        return self._narrow(f"g->{word}[{slot}]", *self._ranges[slot])

    @staticmethod
    def _narrow(text: str, low: int, high: int) -> Value:
        """What is kept in 128 bits."""
        value = Value(text, low, high)
        return value if value.wide else value._replace(text=f"(N){text}")

    def _unary(self, node: ast.UnaryOp) -> Value:
        value = self._value(node.operand)
        if isinstance(node.operand, ast.Constant) and isinstance(node.op, ast.USub):
            return _literal(-value.low)
        if isinstance(node.op, ast.Invert):
            return Value(f"(~{value.text})", ~value.high, ~value.low)
        if isinstance(node.op, ast.USub):
            found = _of("", -value.high, -value.low)
            return found._replace(text=f"(-{_cast(value, found.wide)})")
        if isinstance(node.op, ast.Not):
            return Value(f"(!{value.text})", 0, 1)
        raise Untranslatable(ast.unparse(node)[:60])

    def _binary(self, node: ast.BinOp) -> Value:
        if isinstance(node.op, ast.Mod):
            return self._parity(node)
        left, right = self._value(node.left), self._value(node.right)
        if isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)):
            sign, function = {
                ast.Add: ("+", int.__add__), ast.Sub: ("-", int.__sub__), ast.Mult: ("*", int.__mul__)
            }[type(node.op)]  # fmt: skip
            if isinstance(node.op, ast.Sub):
                found = _of("", left.low - right.high, left.high - right.low)
            else:
                found = _of("", *_corners(function, left, right))
            wide = found.wide or left.wide or right.wide
            return found._replace(text=f"({_cast(left, wide)} {sign} {_cast(right, wide)})")
        if isinstance(node.op, ast.BitAnd):
            if left.low >= 0 or right.low >= 0:
                high = min(one.high for one in (left, right) if one.low >= 0)
                found = Value("", 0, high)
            else:
                bits = max(_bits(*left[1:]), _bits(*right[1:]))
                found = Value("", -1 << bits, max(left.high, right.high))
            one, other = _alike(left, right)
            text = f"({one.text} & {other.text})"
            return found._replace(text=text if found.wide or not one.wide else f"(N){text}")
        if isinstance(node.op, (ast.BitOr, ast.BitXor)):
            bits = max(_bits(*left[1:]), _bits(*right[1:]))
            low = 0 if left.low >= 0 and right.low >= 0 else -1 << bits
            one, other = _alike(left, right)
            sign = "|" if isinstance(node.op, ast.BitOr) else "^"
            return _of(f"({one.text} {sign} {other.text})", low, (1 << bits) - 1)
        if isinstance(node.op, ast.LShift):
            if right.low < 0 or right.high > 127:
                raise Untranslatable(ast.unparse(node)[:60])
            found = _of("", min(left.low << right.high, left.low), max(left.high << right.high, left.high))
            return found._replace(text=f"({_cast(left, found.wide)} << {right.text})")
        if isinstance(node.op, ast.RShift):
            if right.low < 0:
                raise Untranslatable(ast.unparse(node)[:60])
            most = 127 if left.wide else 63
            by = right.text if right.high <= most else f"({right.text} > {most} ? {most} : {right.text})"
            low, high = _corners(int.__rshift__, left, right)
            found = Value(f"({left.text} >> {by})", low, high)
            return found if found.wide or not left.wide else found._replace(text=f"(N){found.text}")
        raise Untranslatable(ast.unparse(node)[:60])

    def _parity(self, node: ast.BinOp) -> Value:
        try:
            inner = node.left.func.value.args[0]  # type: ignore[attr-defined]
            if node.left.func.attr != "count" or node.left.func.value.func.id != "format":  # type: ignore[attr-defined]
                raise Untranslatable(ast.unparse(node)[:60])
        except AttributeError:
            raise Untranslatable(ast.unparse(node)[:60]) from None
        value = self._value(inner)
        if value.wide or value.low < 0:
            raise Untranslatable(ast.unparse(node)[:60])
        return Value(f"((N)__builtin_parityll((unsigned long long)({value.text})))", 0, 1)

    def _call(self, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "read":
            slot, address = self._slot(node.func.value), self._value(node.args[0])
            return self._narrow(f"read_word(g, {slot}, {address.text})", *self._ranges[slot])
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        given = [self._value(each) for each in node.args]
        if name == "bool":
            return Value(f"({given[0].text} != 0)", 0, 1)
        if name == "sign":  # the value has as many bits as the mask's sign is on top of
            value, mask = given
            top = -mask.low
            if value.low < 0 or value.high >= 2 * top:
                raise Untranslatable(ast.unparse(node)[:60])
            found, bit = _of("", -top, top - 1), _literal(top)
            wide = value.wide or bit.wide
            text = f"(({_cast(value, wide)} ^ {bit.text}) - {bit.text})"
            return found._replace(text=text if found.wide or not wide else f"(N){text}")
        if name in ("zdiv", "zmod") and all(value.low >= 0 for value in given):
            one, other = given[0], given[1]
            sign, most = ("/", one.high) if name == "zdiv" else ("%", min(one.high, max(other.high - 1, 0)))
            return Value(f"({other.text} ? {one.text} {sign} {other.text} : 0)", 0, most)
        raise Untranslatable(ast.unparse(node)[:60])


def _cast(value: Value, wide: bool) -> str:
    return f"(W){value.text}" if wide and not value.wide else value.text


def _alike(left: Value, right: Value) -> tuple[Value, Value]:
    wide = left.wide or right.wide
    return left._replace(text=_cast(left, wide)), right._replace(text=_cast(right, wide))
