//! How an API server fails.

/// The API server's behaviour instead of a normal response.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// A failure with this status code.
    Code(u16),
    /// Like `Code`, with this message.
    Answer(u16, &'static str),
    /// The connection stays open without a byte.
    Silence,
}

/// How API servers refuse writes.
pub const REFUSALS: [Fault; 8] = [
    Fault::Answer(403, "exceeded quota: all, requested: count=1"),
    Fault::Answer(
        403,
        "admission webhook \"gate.example.com\" denied the request: no",
    ),
    Fault::Answer(
        404,
        "admission webhook \"gate.example.com\" denied the request: no",
    ),
    Fault::Answer(
        500,
        "failed calling webhook \"gate.example.com\": context deadline exceeded",
    ),
    Fault::Answer(
        422,
        "data: Forbidden: field is immutable when `immutable` is set",
    ),
    Fault::Answer(422, "spec: Invalid value: 1"),
    Fault::Answer(409, "the object has been modified"),
    Fault::Silence,
];
