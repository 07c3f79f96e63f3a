//! Whether the running kubelet reads the provider's configuration, by the flag in its command line.

use std::path::Path;

use globalps_provider::CONFIG_FLAG;

use super::{Provider, Way};
use crate::node::state::Obstacle;
use crate::node::systemd::ProviderFlag;

impl Provider {
    /// Fails unless a kubelet with this flag has the configuration. Not every distribution shows flags in a command
    /// line, but flags that globalps adds are visible.
    pub(crate) fn check_flag(&self, flag: &ProviderFlag) -> Result<(), String> {
        let expected = self.flag_value();
        let found = match (flag, &self.way) {
            (ProviderFlag::Is(value), _) if Path::new(value) == expected => return Ok(()),
            (ProviderFlag::Hidden, Way::Directory | Way::Shared) => return Ok(()),
            (ProviderFlag::Is(value), _) => format!("`{CONFIG_FLAG}={value}`"),
            _ => "no credential provider configuration".to_owned(),
        };
        Err(format!(
            "the kubelet runs with {found}, not with `{CONFIG_FLAG}={}`",
            expected.display()
        ))
    }

    /// The value of the kubelet's flag.
    fn flag_value(&self) -> &Path {
        match &self.way {
            Way::Directory => self.config.host.parent().unwrap_or(Path::new("/")),
            _ => &self.config.host,
        }
    }

    /// Why a kubelet with this flag doesn't read the configuration, on a node whose administrator set the flag.
    pub(crate) fn unread(&self, flag: &ProviderFlag) -> Option<Obstacle> {
        if let Err(error) = self.check_flag(flag) {
            return Some(Obstacle::new(error));
        }
        // No kubelet starts with an empty directory.
        let is_empty = *flag == ProviderFlag::Hidden
            && matches!(self.way, Way::Directory)
            && !self.has_others();
        is_empty.then(|| {
            Obstacle::new(format!(
                "`{}` has no configuration of a credential provider, so no kubelet runs with it",
                self.flag_value().display()
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::{path, set_up};
    use super::*;

    #[test]
    fn the_running_kubelet_must_have_the_configuration_in_its_flags() {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path();
        let config_file = path(&here.join("config.json"));
        let own = Provider::new(here.join("program"), &config_file, None);
        let named = set_up(here, here, here);
        let expected = own.config.host.to_string_lossy().into_owned();
        let host = path(here).host.to_string_lossy().into_owned();
        let is = |value: &str| ProviderFlag::Is(value.to_owned());
        for (provider, flag, is_well) in [
            (&own, is(&expected), true),
            (&own, is("/other"), false),
            (&own, ProviderFlag::Absent, false),
            (&own, ProviderFlag::Hidden, false),
            (&named, is(&host), true),
            (&named, is("/other"), false),
            (&named, ProviderFlag::Absent, false),
            (&named, ProviderFlag::Hidden, true),
        ] {
            assert_eq!(provider.check_flag(&flag).is_ok(), is_well, "{flag:?}");
        }
        let unread = |flag| named.unread(&flag).map(|it| it.message);
        assert_eq!(unread(is(&host)), None, "its flag names the directory");
        let empty = format!("`{host}` has no configuration of a credential provider");
        assert!(unread(ProviderFlag::Hidden).is_some_and(|it| it.starts_with(&empty)));
        fs::write(here.join("theirs.yaml"), "").unwrap();
        assert_eq!(unread(ProviderFlag::Hidden), None);
    }
}
