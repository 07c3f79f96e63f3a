//! Errors of D-Bus calls: nobody responded, systemd is not on the bus, or systemd answered with an error.

use zbus::{DBusError as _, fdo};

use super::{RestartError, Systemd};

/// The bus answers, but systemd is not on it.
const NO_SYSTEMD: [&str; 3] = [
    "org.freedesktop.DBus.Error.ServiceUnknown",
    "org.freedesktop.DBus.Error.NameHasNoOwner",
    "org.freedesktop.DBus.Error.UnknownMethod",
];
/// The bus answers in place of a service that did not respond.
const NO_RESPONSE: [&str; 4] = [
    "org.freedesktop.DBus.Error.NoReply",
    "org.freedesktop.DBus.Error.Timeout",
    "org.freedesktop.DBus.Error.TimedOut",
    "org.freedesktop.DBus.Error.Disconnected",
];

impl Systemd {
    /// The meaning of a failed call about the unit.
    pub(super) fn error(&self, source: zbus::Error) -> RestartError {
        let name = answered(&source);
        let is = |names: &[&str]| name.as_deref().is_some_and(|name| names.contains(&name));
        if is(&NO_SYSTEMD) {
            return RestartError::NoSystemd {
                path: self.bus.clone(),
            };
        }
        if name.is_some() && !is(&NO_RESPONSE) {
            return RestartError::Answered {
                unit: self.unit.clone(),
                source,
            };
        }
        RestartError::Bus {
            path: self.bus.clone(),
            source,
        }
    }
}

/// The name of the error in the response; `None`: there was no response, or none with an error.
fn answered(error: &zbus::Error) -> Option<String> {
    match error {
        zbus::Error::MethodError(name, ..) => Some(name.to_string()),
        // Names that the specification of D-Bus defines.
        zbus::Error::FDO(error) => match &**error {
            fdo::Error::ZBus(error) => answered(error),
            error => Some(error.name().to_string()),
        },
        _ => None,
    }
}
