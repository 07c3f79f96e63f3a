//! Parses a template. Errors name the position.

use std::str::FromStr;

use serde_json::Value;

use super::path::{JsonPath, Operator, Path, Segment, TemplateAction};

impl FromStr for JsonPath {
    type Err = String;

    fn from_str(template: &str) -> Result<Self, String> {
        let mut actions = Vec::new();
        let mut ranges = 0_usize;
        let mut at = 0;
        while let Some(before) = template[at..].find('{') {
            let open = at + before;
            if before > 0 {
                actions.push(plain(&template[at..open]));
            }
            let mut parser = Parser {
                template,
                at: open + 1,
                end: template.len(),
                is_action: true,
            };
            let mut block = None;
            let path = parser.path(&mut block)?;
            actions.push(match block {
                None => TemplateAction::Print(path),
                Some(Block::Range) => {
                    ranges += 1;
                    TemplateAction::Range(path)
                }
                Some(Block::End) => {
                    ranges = ranges
                        .checked_sub(1)
                        .ok_or_else(|| parser.error(open, "`{end}` without `{range}`"))?;
                    TemplateAction::End
                }
            });
            at = parser.at;
        }
        if at < template.len() {
            actions.push(plain(&template[at..]));
        }
        Ok(Self(actions))
    }
}

fn plain(text: &str) -> TemplateAction {
    TemplateAction::Print(vec![Segment::Text(text.into())])
}

/// Begins or ends a range.
enum Block {
    Range,
    End,
}

struct Parser<'t> {
    template: &'t str,
    at: usize,
    end: usize,
    /// Whether the text has its own braces; otherwise it is part of a path.
    is_action: bool,
}

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t str {
        &self.template[self.at..self.end]
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest().chars().next()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn error(&self, at: usize, reason: &str) -> String {
        let before = self.template[..at].chars().count();
        format!("character {}: {reason}", before + 1)
    }

    /// A parser for a part of this path.
    fn part(&self, at: usize, end: usize) -> Parser<'t> {
        Parser {
            template: self.template,
            at,
            end,
            is_action: false,
        }
    }

    fn path(&mut self, block: &mut Option<Block>) -> Result<Path, String> {
        let mut path = Vec::new();
        let begin = self.at;
        loop {
            let at = self.at;
            if self.rest().starts_with("[?(") {
                path.push(self.filter()?);
                continue;
            }
            let next = match self.next() {
                None if !self.is_action => return Ok(path),
                None | Some('\r' | '\n') => {
                    return Err(self.error(begin - 1, "`{` without `}` on the same line"));
                }
                Some(next) => next,
            };
            match next {
                '}' if self.is_action => return Ok(path),
                ' ' | '@' | '$' => {}
                '.' if self.rest().starts_with('.') => {
                    self.at += 1;
                    if path.last() == Some(&Segment::Descend) {
                        return Err(self.error(at, "`..` follows `..`"));
                    }
                    path.push(Segment::Descend);
                    if self.rest().starts_with(is_of_a_word) {
                        path.push(self.field());
                    }
                }
                '.' => path.push(self.field()),
                '[' => path.extend(self.brackets(at)?),
                '"' | '\'' => path.push(self.text(at, next)?),
                '+' | '-' | '0'..='9' => path.push(self.number(at)?),
                next if is_of_a_word(next) => {
                    let word = self.word(at);
                    match word {
                        "true" | "false" => path.push(Segment::Constant((word == "true").into())),
                        "range" if self.is_action => *block = Some(Block::Range),
                        "end" if self.is_action => *block = Some(Block::End),
                        _ => {
                            let reason = format!(
                                "unexpected `{word}`: a field begins with `.`, a text is in quotes"
                            );
                            return Err(self.error(at, &reason));
                        }
                    }
                }
                _ => return Err(self.error(at, &format!("unexpected `{next}`"))),
            }
        }
    }

    /// Reads up to a character that can't be part of a name. A backslash escapes the next character.
    fn word(&mut self, from: usize) -> &'t str {
        while let Some(next) = self.next() {
            if next == '\\' {
                self.next();
            } else if " \t\r\n.,[]$@{}".contains(next) {
                self.at -= next.len_utf8();
                break;
            }
        }
        &self.template[from..self.at]
    }

    fn field(&mut self) -> Segment {
        match self.word(self.at) {
            "*" => Segment::Children,
            name => Segment::Field(name.replace('\\', "")),
        }
    }

    fn number(&mut self, from: usize) -> Result<Segment, String> {
        let rest = self.rest();
        let length = rest.find(|c: char| c != '.' && !c.is_ascii_digit());
        self.at += length.unwrap_or(rest.len());
        let text = &self.template[from..self.at];
        let number = match text.parse::<i64>() {
            Ok(number) => Some(Value::from(number)),
            Err(_) => text.parse::<f64>().ok().map(Value::from),
        };
        let number = number.ok_or_else(|| self.error(from, &format!("`{text}` is not a number")));
        number.map(Segment::Constant)
    }

    fn text(&mut self, from: usize, quote: char) -> Result<Segment, String> {
        loop {
            match self.next() {
                Some('\\') => drop(self.next()),
                Some(next) if next == quote => break,
                None | Some('\n') => {
                    return Err(self.error(from, "a quote that is not closed on the same line"));
                }
                Some(_) => {}
            }
        }
        let text = unescaped(&self.template[from + 1..self.at - 1]);
        let text = text.ok_or_else(|| self.error(from, "an unknown escape sequence"))?;
        Ok(Segment::Text(text.into()))
    }

    /// `from`: position of the opening bracket.
    fn brackets(&mut self, from: usize) -> Result<Path, String> {
        let rest = self.rest();
        let close = rest
            .find([']', '\n'])
            .filter(|at| rest[*at..].starts_with(']'));
        let close = close.ok_or_else(|| self.error(from, "`[` without `]` on the same line"))?;
        let (begin, end) = (self.at, self.at + close);
        self.at = end + 1;
        let parts: Vec<&str> = self.template[begin..end].split(',').collect();
        if let [part] = parts.as_slice() {
            return self.inside(begin, part);
        }
        let mut at = begin;
        let mut paths = Vec::new();
        for part in parts {
            let spaces = part.len() - part.trim_start_matches(' ').len();
            paths.push(self.inside(at + spaces, part.trim_matches(' '))?);
            at += part.len() + 1;
        }
        Ok(vec![Segment::Union(paths)])
    }

    /// Parses the content of brackets, or one element of a union.
    fn inside(&self, at: usize, text: &str) -> Result<Path, String> {
        if text == "*" {
            return Ok(vec![slice(None, None, 1)]);
        }
        let quoted = text.strip_prefix('\'').and_then(|it| it.strip_suffix('\''));
        if let Some(name) = quoted.filter(|name| !name.contains('\'')) {
            let mut parser = self.part(at + 1, at + 1 + name.len());
            let mut path = vec![parser.field()];
            path.extend(parser.path(&mut None)?);
            return Ok(path);
        }
        let invalid = || {
            let reason = format!("`[{text}]` is no index, no slice, and no name in single quotes");
            self.error(at, &reason)
        };
        let number = |text: &str| match text {
            "" => Ok(None),
            text => text.parse::<i64>().map(Some).map_err(|_| invalid()),
        };
        let numbers: Vec<Option<i64>> = text.split(':').map(number).collect::<Result<_, _>>()?;
        Ok(vec![match numbers.as_slice() {
            [index] => Segment::Index(index.unwrap_or(0)),
            [start, end] => slice(*start, *end, 1),
            [start, end, step] => {
                let step = usize::try_from(step.unwrap_or(1)).ok();
                let step = step.filter(|step| *step > 0);
                slice(*start, *end, step.ok_or_else(invalid)?)
            }
            _ => return Err(invalid()),
        }])
    }

    fn filter(&mut self) -> Result<Segment, String> {
        let open = self.at;
        self.at += "[?(".len();
        let begin = self.at;
        let mut quote = None;
        loop {
            match (self.next(), quote) {
                (None | Some('\n'), _) => {
                    return Err(self.error(open, "a filter without `)]` on the same line"));
                }
                (Some('\\'), Some(_)) => drop(self.next()),
                (Some(next), Some(quoting)) if next == quoting => quote = None,
                (Some(next @ ('"' | '\'')), None) => quote = Some(next),
                (Some(')'), None) => break,
                _ => {}
            }
        }
        let end = self.at - 1;
        if self.next() != Some(']') {
            return Err(self.error(end + 1, "`]` must follow `)`"));
        }
        let text = &self.template[begin..end];
        let is_operator = |c: char| "!<>=".contains(c);
        let Some(from) = text.find(is_operator) else {
            return Ok(Segment::Filter(
                self.part(begin, end).path(&mut None)?,
                None,
            ));
        };
        let length = text[from..].find(|c| !is_operator(c));
        let length = length.filter(|_| from > 0);
        let length = length.ok_or_else(|| {
            self.error(
                begin + from,
                "a filter compares what is before the operator with what is after it",
            )
        })?;
        let operator = operator(&text[from..from + length]).ok_or_else(|| {
            let reason = "a filter compares with `==`, `!=`, `<`, `<=`, `>` or `>=`";
            self.error(begin + from, reason)
        })?;
        let left = self.part(begin, begin + from).path(&mut None)?;
        let right = self.part(begin + from + length, end).path(&mut None)?;
        Ok(Segment::Filter(left, Some((operator, right))))
    }
}

fn slice(start: Option<i64>, end: Option<i64>, step: usize) -> Segment {
    Segment::Slice { start, end, step }
}

fn is_of_a_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn operator(text: &str) -> Option<Operator> {
    Some(match text {
        "==" => Operator::Equal,
        "!=" => Operator::NotEqual,
        "<" => Operator::Less,
        "<=" => Operator::LessOrEqual,
        ">" => Operator::Greater,
        ">=" => Operator::GreaterOrEqual,
        _ => return None,
    })
}

/// Unescapes a quoted string by Go's rules.
fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        bytes.extend(before.as_bytes());
        let escape = after.chars().next()?;
        rest = &after[escape.len_utf8()..];
        let mut digits = |count: usize, radix: u32| {
            let (digits, others) = rest.split_at_checked(count)?;
            rest = others;
            u32::from_str_radix(digits, radix).ok()
        };
        match escape {
            'a' => bytes.push(0x07),
            'b' => bytes.push(0x08),
            'f' => bytes.push(0x0c),
            'n' => bytes.push(b'\n'),
            'r' => bytes.push(b'\r'),
            't' => bytes.push(b'\t'),
            'v' => bytes.push(0x0b),
            '\\' | '\'' | '"' => bytes.extend(escape.to_string().as_bytes()),
            'x' => bytes.push(u8::try_from(digits(2, 16)?).ok()?),
            'u' => bytes.extend(char::from_u32(digits(4, 16)?)?.to_string().as_bytes()),
            'U' => bytes.extend(char::from_u32(digits(8, 16)?)?.to_string().as_bytes()),
            _ => return None,
        }
    }
    bytes.extend(rest.as_bytes());
    String::from_utf8(bytes).ok()
}
