//! Numbers in Go's format. Pure.

use serde_json::Value;

/// Turns 10.0 into 10, as Go prints it.
pub(crate) fn plain_numbers(value: Value) -> Value {
    /// From here on, several integers share one float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => match number.as_f64() {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "it is an integer and small enough"
            )]
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT => {
                (float as i64).into()
            }
            _ => number.into(),
        },
        Value::Array(items) => items.into_iter().map(plain_numbers).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (name, plain_numbers(value)))
            .collect(),
        other => other,
    }
}
