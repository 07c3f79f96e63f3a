//! A systemd `EnvironmentFile`, and the words of a variable's value in a command line, as systemd reads them
//! (`parse_env_file_internal` and `extract_first_word` of systemd 257). Each byte of a value keeps its place in the file, so that
//! words can be added and removed without a change of others. Pure.

use std::ops::Range;

/// A byte of a value, and the file's bytes that mean it: two for an escaped one.
#[derive(Debug)]
struct Byte {
    byte: u8,
    at: Range<usize>,
}

/// An assignment of a variable.
#[derive(Debug, Default)]
pub(super) struct VariableAssignment {
    pub(super) name: Vec<u8>,
    value: Vec<Byte>,
    /// The value in the file, with its quotes.
    at: Range<usize>,
    /// Whether it follows a comment that ends in a backslash: before version 254, systemd treats it as part of the comment.
    pub(super) is_ambiguous: bool,
}

/// A word of a value, without its quotes.
#[derive(Debug)]
pub(super) struct Word {
    pub(super) text: Vec<u8>,
    /// The word's bytes in the value.
    at: Range<usize>,
}

impl Word {
    /// A word of a command line.
    pub(super) fn of(text: &str) -> Self {
        Self {
            text: text.as_bytes().to_vec(),
            at: 0..0,
        }
    }
}

/// Names of the variables in a file, in order, and the words of each.
type Meaning = Vec<(Vec<u8>, Vec<Vec<u8>>)>;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ParserState {
    #[default]
    BeforeName,
    Name,
    BeforeValue,
    Value,
    Escape,
    Single,
    Double,
    DoubleEscape,
    Comment,
    CommentEscape,
}

#[derive(Default)]
struct Parser {
    state: ParserState,
    found: Vec<VariableAssignment>,
    current: VariableAssignment,
    /// Start of the whitespace at the end of an unquoted value.
    trailing: Option<usize>,
}

impl Parser {
    #[expect(
        clippy::match_same_arms,
        reason = "a line for each transition, in systemd's order"
    )]
    fn step(&mut self, at: usize, byte: u8) {
        let is_newline = matches!(byte, b'\n' | b'\r');
        self.state = match (self.state, byte) {
            (ParserState::BeforeName, b'#' | b';') => ParserState::Comment,
            (ParserState::BeforeName, _) if is_space(byte) => ParserState::BeforeName,
            (ParserState::Name, _) if is_newline => self.start_line(false),
            (ParserState::Name, b'=') => {
                self.current.at = at + 1..at + 1;
                ParserState::BeforeValue
            }
            (ParserState::BeforeName | ParserState::Name, _) => {
                self.current.name.push(byte);
                ParserState::Name
            }
            (ParserState::BeforeValue | ParserState::Value, _) if is_newline => self.end(at),
            (ParserState::BeforeValue, b'\'') => ParserState::Single,
            (ParserState::BeforeValue, b'"') => ParserState::Double,
            (ParserState::BeforeValue | ParserState::Value, b'\\') => {
                self.trailing = None;
                ParserState::Escape
            }
            (ParserState::BeforeValue, _) if is_space(byte) => ParserState::BeforeValue,
            (ParserState::BeforeValue | ParserState::Value, _) => {
                let length = self.current.value.len();
                self.trailing = is_space(byte).then(|| self.trailing.unwrap_or(length));
                self.push(byte, at..at + 1, ParserState::Value)
            }
            (ParserState::Escape, _) if is_newline => ParserState::Value,
            (ParserState::Escape, _) => self.push(byte, at - 1..at + 1, ParserState::Value),
            (ParserState::Single, b'\'') | (ParserState::Double, b'"') => ParserState::BeforeValue,
            (ParserState::Double, b'\\') => ParserState::DoubleEscape,
            (ParserState::Single | ParserState::Double, _) => {
                self.push(byte, at..at + 1, self.state)
            }
            (ParserState::DoubleEscape, b'\n') => ParserState::Double,
            (ParserState::DoubleEscape, b'"' | b'\\' | b'`' | b'$') => {
                self.push(byte, at - 1..at + 1, ParserState::Double)
            }
            (ParserState::DoubleEscape, _) => {
                self.push(b'\\', at - 1..at, ParserState::Double);
                self.push(byte, at..at + 1, ParserState::Double)
            }
            (ParserState::Comment, b'\\') => ParserState::CommentEscape,
            (ParserState::Comment, _) if is_newline => self.start_line(false),
            (ParserState::CommentEscape, _) if is_newline => self.start_line(true),
            (ParserState::Comment | ParserState::CommentEscape, _) => ParserState::Comment,
        };
    }

    fn push(&mut self, byte: u8, at: Range<usize>, state: ParserState) -> ParserState {
        self.current.value.push(Byte { byte, at });
        state
    }

    fn start_line(&mut self, is_ambiguous: bool) -> ParserState {
        self.current = VariableAssignment {
            is_ambiguous,
            ..VariableAssignment::default()
        };
        self.trailing = None;
        ParserState::BeforeName
    }

    /// The value ends here in the file.
    fn end(&mut self, at: usize) -> ParserState {
        if self.state == ParserState::Value {
            let length = self.trailing.unwrap_or(self.current.value.len());
            self.current.value.truncate(length);
        }
        let name = &mut self.current.name;
        name.truncate(name.trim_ascii_end().len());
        self.current.at.end = at;
        self.found.push(std::mem::take(&mut self.current));
        self.start_line(false)
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// All assignments in a file, in order; the last one of a variable is effective.
pub(super) fn assignments(file: &[u8]) -> Vec<VariableAssignment> {
    let mut parser = Parser::default();
    for (at, byte) in file.iter().enumerate() {
        parser.step(at, *byte);
    }
    if !matches!(
        parser.state,
        ParserState::BeforeName
            | ParserState::Name
            | ParserState::Comment
            | ParserState::CommentEscape
    ) {
        parser.end(file.len());
    }
    parser.found
}

impl VariableAssignment {
    /// The words of an argument that is only this variable, such as `$NAME`.
    pub(super) fn words(&self) -> Vec<Word> {
        let mut words = Vec::new();
        let mut current: Option<Word> = None;
        let (mut quote, mut is_escaped) = (None, false);
        for (at, Byte { byte, .. }) in self.value.iter().enumerate() {
            let byte = *byte;
            if quote.is_none() && !is_escaped && is_space(byte) {
                words.extend(current.take());
                continue;
            }
            let word = current.get_or_insert_with(|| Word {
                text: Vec::new(),
                at: at..at,
            });
            word.at.end = at + 1;
            if is_escaped {
                word.text.push(byte);
                is_escaped = false;
            } else if byte == b'\\' {
                is_escaped = true;
            } else if quote == Some(byte) {
                quote = None;
            } else if quote.is_none() && matches!(byte, b'"' | b'\'') {
                quote = Some(byte);
            } else {
                word.text.push(byte);
            }
        }
        words.extend(current);
        words
    }

    /// systemd reads no file with a name or value that is not UTF-8.
    pub(super) fn is_text(&self) -> bool {
        let value: Vec<u8> = self.value.iter().map(|value| value.byte).collect();
        [&self.name, &value]
            .iter()
            .all(|bytes| str::from_utf8(bytes).is_ok())
    }

    /// systemd ignores a variable whose value has control characters.
    pub(super) fn is_valid(&self) -> bool {
        let is_allowed = |byte: u8| !byte.is_ascii_control() || matches!(byte, b'\t' | b'\n');
        !self.is_ambiguous && self.value.iter().all(|value| is_allowed(value.byte))
    }

    /// The file with these plain words before or after the value's own, and the number of words before them.
    pub(super) fn with_words(&self, file: &[u8], words: &str, is_first: bool) -> (Vec<u8>, usize) {
        let (at, text) = match (self.value.first(), self.value.last()) {
            (Some(first), _) if is_first => (first.at.start, format!("{words} ")),
            (_, Some(last)) => (last.at.end, format!(" {words}")),
            _ => {
                let raw = &file[self.at.clone()];
                match raw.iter().position(|byte| matches!(byte, b'"' | b'\'')) {
                    Some(quote) => (self.at.start + quote + 1, format!(" {words}")),
                    None => (self.at.start, words.to_owned()),
                }
            }
        };
        let before = if is_first { 0 } else { self.words().len() };
        let edited = [&file[..at], text.as_bytes(), &file[at..]].concat();
        (edited, before)
    }

    /// The file without these of the value's words. Only their bytes and a space next to each are removed, unless what is left
    /// would mean something else: then the value is written again.
    pub(super) fn without_words(&self, file: &[u8], is_removed: impl Fn(usize) -> bool) -> Vec<u8> {
        let mut removed = vec![false; self.value.len()];
        let mut left = Vec::new();
        for (index, word) in self.words().into_iter().enumerate() {
            if !is_removed(index) {
                left.push(word.text);
                continue;
            }
            let (start, end) = (word.at.start, word.at.end);
            removed[word.at].fill(true);
            if start > 0 && !removed[start - 1] {
                removed[start - 1] = true;
            } else if end < removed.len() {
                removed[end] = true;
            }
        }
        let mut edited = Vec::with_capacity(file.len());
        let mut from = 0;
        for (byte, _) in self
            .value
            .iter()
            .zip(&removed)
            .filter(|(_, removed)| **removed)
        {
            edited.extend_from_slice(&file[from..byte.at.start]);
            from = byte.at.end;
        }
        edited.extend_from_slice(&file[from..]);
        let mut expected = meaning(file);
        let place = assignments(file)
            .iter()
            .position(|other| other.at == self.at);
        if let Some((_, words)) = place.and_then(|place| expected.get_mut(place)) {
            words.clone_from(&left);
        }
        if meaning(&edited) == expected {
            return edited;
        }
        let value = rendered(&left);
        [&file[..self.at.start], &value, &file[self.at.end..]].concat()
    }
}

/// The variables and words of a file, independently of quoting.
pub(super) fn meaning(file: &[u8]) -> Meaning {
    let texts = |it: &VariableAssignment| it.words().into_iter().map(|word| word.text).collect();
    let all = assignments(file).into_iter();
    all.map(|it| (it.name.clone(), texts(&it))).collect()
}

/// A value with these words, in double quotes.
fn rendered(words: &[Vec<u8>]) -> Vec<u8> {
    let mut value = vec![b'"'];
    for (index, word) in words.iter().enumerate() {
        if index > 0 {
            value.push(b' ');
        }
        if word.is_empty() {
            value.extend_from_slice(b"''");
        }
        for byte in word {
            match byte {
                // Twice: for the word, and each for the double quotes.
                b'"' | b'\\' => value.extend_from_slice(&[b'\\', b'\\', b'\\', *byte]),
                b'\'' => value.extend_from_slice(b"\\\\'"),
                byte if is_space(*byte) => value.extend_from_slice(&[b'\\', b'\\', *byte]),
                b'$' | b'`' => value.extend_from_slice(&[b'\\', *byte]),
                byte => value.push(*byte),
            }
        }
    }
    value.push(b'"');
    value
}
