//! Periodic checks whether registries accept the credentials.

use std::time::Duration;

use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the API server accepts for an interval.
const INTERVALS: (Duration, Duration) = (Duration::from_mins(1), Duration::from_hours(168));
const DEFAULT_INTERVAL: Duration = Duration::from_hours(1);

/// Periodic checks whether registries accept the credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verify {
    /// How often each registry is asked: from 1m to 168h.
    #[serde(default = "default_interval")]
    #[schemars(length(max = 16), regex(pattern = r"^([0-9]+h)?([0-9]+m)?([0-9]+s)?$"))]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "duration(self) >= duration('1m') && duration(self) <= duration('168h')",
        "message": "interval must be from 1m to 168h, such as 1h or 90m",
    }]))]
    pub interval: String,
}

impl Verify {
    /// Within what the API server accepts.
    pub fn interval(&self) -> Duration {
        let interval = self.interval.parse::<SignedDuration>().ok();
        let interval = interval.and_then(|interval| Duration::try_from(interval).ok());
        interval
            .unwrap_or(DEFAULT_INTERVAL)
            .clamp(INTERVALS.0, INTERVALS.1)
    }
}

fn default_interval() -> String {
    "1h".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_read_as_the_api_server_reads_it() {
        for (text, seconds) in [
            ("1h", 3600),
            ("90m", 5400),
            ("1h30m", 5400),
            ("1h1m1s", 3661),
            ("60s", 60),
            ("1s", 60),
            ("0h", 60),
            ("169h", 168 * 3600),
            ("99999999999999h", 168 * 3600),
            ("", 3600),
        ] {
            let verify = Verify {
                interval: text.to_owned(),
            };
            assert_eq!(verify.interval().as_secs(), seconds, "{text}");
        }
        let absent: Verify = serde_json::from_str("{}").expect("an empty object");
        assert_eq!(absent.interval(), DEFAULT_INTERVAL);
    }
}
