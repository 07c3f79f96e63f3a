//! What a user sees and types: columns, colors, prompts; nothing of others steers the terminal.

pub(crate) mod columns;
pub(crate) mod escapes;
pub(crate) mod layout;
pub(crate) mod printer;
pub(crate) mod prompt;
