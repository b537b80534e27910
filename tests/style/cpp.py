"""Just enough of C++ to find calls and function bodies in formatted sources. Not a parser."""

import re

_LITERAL = re.compile(
    r'//[^\n]*'
    r'|/\*.*?\*/'
    r'|R"([^\s()\\]{0,16})\(.*?\)\1"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'",
    re.S)


def blank(text, keep_strings=False):
    """The text with comments and literals replaced by blanks; offsets and lines stay the same."""
    def erase(match):
        if keep_strings and not match.group().startswith('/'):
            return match.group()
        return re.sub(r'[^\n]', ' ', match.group())
    return _LITERAL.sub(erase, text)


def line_of(text, offset):
    return text.count('\n', 0, offset) + 1


def closing(text, offset, pair='()'):
    """Offset behind the bracket that closes the one at `offset`."""
    depth = 0
    for i in range(offset, len(text)):
        if text[i] == pair[0]:
            depth += 1
        elif text[i] == pair[1]:
            depth -= 1
            if depth == 0:
                return i + 1
    return len(text)


def calls(code, names):
    """(offset, name, arguments) of the plain and ::global calls of `names`.

    Calls of methods and of names in a namespace are others' functions; `type name(` declares one.
    """
    pattern = re.compile(r'(?<![\w.>:])(?:(?<!\w)::)?\b(' + '|'.join(names) + r')\s*\(')
    for match in pattern.finditer(code):
        before = code[:match.start()].rstrip()
        word = re.search(r'(\w+)$', before)
        if word and word.group(1) not in ('return', 'co_return', 'else', 'do', 'co_await'):
            continue
        if before.endswith(('->', '.')):
            continue
        # "Result<void> mount(", "int* open(": a declaration, unless an operator ends there.
        if before.endswith(('>', '&', '*')) and re.search(r'\w\s*(<[^;{}()]*>)?\s*[>&*]$', before):
            if before.endswith('>') and not before.endswith('->') and '<' in before[-80:]:
                continue
            if re.search(r'[;{}(]\s*(const\s+)?[\w:]+\s*[&*]$', before):
                continue
        opening = match.end() - 1
        yield match.start(), match.group(1), code[opening:closing(code, opening)]


def argument_count(arguments):
    """How many arguments "(a, b(c, d))" has."""
    if not arguments[1:-1].strip():
        return 0
    depth = count = 0
    for char in arguments:
        depth += (char in '([{') - (char in ')]}')
        count += char == ',' and depth == 1
    return count + 1


_NO_BODY = re.compile(r'\b(namespace|class|struct|union|enum|extern)\b')


def first_branches(code):
    """Without directives and without #else and #elif branches: their braces come in twos."""
    kept, taken, continued = [], [], False
    for line in code.split('\n'):
        directive = re.match(r'\s*#\s*(\w*)', line)
        if directive and not continued:
            word = directive.group(1)
            if word.startswith('if'):
                taken.append(True)
            elif word.startswith('el') and taken:
                taken[-1] = False
            elif word == 'endif' and taken:
                taken.pop()
        drop = directive or continued or not all(taken)
        continued = bool(directive or continued) and line.endswith('\\')
        kept.append(' ' * len(line) if drop else line)
    return '\n'.join(kept)


def bodies(code):
    """(first line, last line) of every outermost function body."""
    code = first_branches(code)
    position = 0
    start = 0  # of the text that leads to the next brace
    while position < len(code):
        char = code[position]
        if char in ';}':
            start = position + 1
        elif char == '{':
            head = code[start:position]
            signature = re.sub(r'\btemplate\s*<.*?>\s*(?=\w)', '', head, flags=re.S)
            is_scope = _NO_BODY.search(signature) and '(' not in signature
            if not is_scope:
                end = closing(code, position, '{}')
                is_data = '(' not in head or head.rstrip().endswith('=')
                # "{" right after "}" is the body behind a constructor's initialisers.
                if not is_data or not head.strip():
                    yield line_of(code, position), line_of(code, end - 1)
                position = end - 1
            start = position + 1
        position += 1
