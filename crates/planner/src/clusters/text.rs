//! Text from another cluster, which may be of any length and have any character. Pure.

/// Maximum length of a reason from another cluster.
pub(super) const REASON_LIMIT: usize = 64;

/// Sanitizes text from another cluster for a status: removes control characters and limits the length.
pub fn sanitized(text: &str, most: usize) -> String {
    let text = text.chars().filter(|c| !c.is_control());
    text.take(most).collect()
}
