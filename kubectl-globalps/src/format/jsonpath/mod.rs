//! `JSONPath` templates in client-go's dialect: plain text, and paths in braces. Pure.
//!
//! `$` and `@` are both the current value, a quoted name in brackets is a path of its own, and missing fields print nothing.
//! Three things differ from kubectl, which loses or fails there: an empty list doesn't drop the lists after it, an index out of
//! bounds is not there for a filter, and `null` counts as missing in a filter.

mod evaluate;
mod parse;
mod path;

pub(crate) use path::JsonPath;

#[cfg(test)]
mod tests;
