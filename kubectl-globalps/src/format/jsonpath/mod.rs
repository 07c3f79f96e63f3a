//! `JSONPath` templates in client-go's dialect: plain text, and paths in braces. Pure.
//!
//! `$` and `@` both refer to the current value, a quoted name in brackets is a path of its own, and missing fields
//! print nothing. Three things differ from kubectl, which loses values or fails in these cases: an empty list doesn't
//! drop the lists after it, an index out of bounds is a missing value for a filter, and `null` counts as missing in a
//! filter.

mod evaluate;
mod parse;
mod path;

pub(crate) use path::JsonPath;

#[cfg(test)]
mod tests;
