//! Terminal input and output: columns, colors, prompts. Untrusted text can't control the terminal.

pub(crate) mod columns;
pub(crate) mod escapes;
pub(crate) mod external_diff;
pub(crate) mod layout;
pub(crate) mod output;
pub(crate) mod printer;
pub(crate) mod prompt;

pub(crate) use columns::{cut, natural_width, wrap, wrap_sentences};
pub(crate) use escapes::{line, plain};
pub(crate) use layout::{Layout, age_of, few, nodes, number, uncolored};
pub(crate) use printer::{Frame, Printer, Stream, is_terminal, terminal_size, terminal_width};
pub(crate) use prompt::{can_ask, confirm, not_confirmed};
