//! What the kubelet's unit starts, and what runs in it.

use tokio::time::timeout;
use zbus::proxy::CacheProperties;

use super::bus::{ManagerProxy, ServiceProxy};
use super::{CALL_TIMEOUT, RestartError, Systemd};

const NO_SUCH_UNIT: &str = "org.freedesktop.systemd1.NoSuchUnit";

/// Commands of a unit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Commands {
    /// Each program that the unit starts, and its arguments before systemd replaces variables in them.
    pub(crate) starts: Vec<(String, Vec<String>)>,
    /// Files with variables, as the node names them.
    pub(crate) environment_files: Vec<String>,
    /// The command line of each process in its control group. Pids are the node's, which a pod can't compare with that
    /// of the socket's owner.
    pub(crate) running: Vec<String>,
}

impl Commands {
    /// The programs that the unit starts, and those that run: paths, or a program's own first argument.
    pub(crate) fn programs(&self) -> Vec<String> {
        let started = self.starts.iter().map(|(program, _)| program.clone());
        let running = self.running.iter().filter_map(|line| {
            let first = line.split_whitespace().next()?;
            Some(first.to_owned())
        });
        started.chain(running).collect()
    }

    /// The value of a flag of the processes; of several, the last. `None`: no process has the flag.
    pub(crate) fn flag(&self, name: &str) -> Option<String> {
        let value = |line: &String| {
            let mut words = line.split_whitespace();
            let mut last = None;
            while let Some(word) = words.next() {
                match word.strip_prefix(name) {
                    Some("") => last = words.next(),
                    Some(rest) => last = rest.strip_prefix('=').or(last),
                    None => {}
                }
            }
            last.map(|value| value.trim_matches('"').to_owned())
        };
        self.running.iter().find_map(value)
    }
}

impl Systemd {
    pub(crate) async fn commands(&self) -> Result<Commands, RestartError> {
        // Its errors, for a unit that does not exist.
        self.facts().await?;
        let connection = self.connect().await?;
        let ask = async {
            let manager = ManagerProxy::new(&connection).await?;
            let path = manager.load_unit(&self.unit).await?;
            let service = ServiceProxy::builder(&connection)
                .path(&path)
                .cache_properties(CacheProperties::No)
                .build()
                .await?;
            let starts = service.exec_start().await?.into_iter();
            let files = service.environment_files().await?.into_iter();
            let processes = match manager.get_unit_processes(&self.unit).await {
                // systemd forgets a unit that does not run between two calls.
                Err(zbus::Error::MethodError(name, ..)) if name == NO_SUCH_UNIT => Vec::new(),
                processes => processes?,
            };
            zbus::Result::Ok(Commands {
                starts: starts.map(|command| (command.0, command.1)).collect(),
                environment_files: files.map(|(path, _)| path).collect(),
                running: processes.into_iter().map(|(_, _, line)| line).collect(),
            })
        };
        match timeout(CALL_TIMEOUT, ask).await {
            Ok(commands) => commands.map_err(|source| RestartError::Bus {
                path: self.bus.clone(),
                source,
            }),
            Err(_) => Err(RestartError::Silent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_of_a_flag_counts() {
        for (line, expected) in [
            ("kubelet --v=2", None),
            ("kubelet --config=a", Some("a")),
            ("kubelet --config a --v=2", Some("a")),
            ("kubelet --config=a --config=b", Some("b")),
            ("kubelet --config=a --config-dir=b", Some("a")),
            ("kubelet \"--config=a\"", None),
            ("kubelet --config=\"a\"", Some("a")),
        ] {
            let commands = Commands {
                running: vec!["sleep 1".to_owned(), line.to_owned()],
                ..Commands::default()
            };
            assert_eq!(commands.flag("--config").as_deref(), expected, "{line}");
        }
    }
}
