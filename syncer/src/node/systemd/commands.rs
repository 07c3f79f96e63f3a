//! The command of the kubelet's unit, and its running processes.

use globalps_provider::{CONFIG_FLAG, running_flags};
use tokio::time::timeout;
use zbus::proxy::CacheProperties;

use super::bus::{ManagerProxy, ServiceProxy};
use super::{CALL_TIMEOUT, RestartError, Systemd};

const NO_SUCH_UNIT: &str = "org.freedesktop.systemd1.NoSuchUnit";

/// Commands of a unit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Commands {
    /// Each program that the unit starts, and its arguments before systemd expands variables.
    pub(crate) starts: Vec<(String, Vec<String>)>,
    /// Files with variables, as paths on the node.
    pub(crate) environment_files: Vec<String>,
    /// The command line of each process in its control group. The pids are the host's and have no meaning in the pod.
    pub(crate) running: Vec<String>,
    /// Why systemd did not list the processes.
    pub(crate) unlisted: Option<String>,
}

/// The kubelet's flag with its credential provider configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProviderFlag {
    Is(String),
    /// The kubelet's command line has none.
    Absent,
    /// No process is recognizable as the kubelet, for example because it is part of another program.
    Hidden,
}

/// Names of programs that run a kubelet: itself, a distribution's single binary, or a wrapper.
const KUBELETS: [&str; 9] = [
    "kubelet",
    "kubelet-wrapper",
    "kubelite",
    "kubenswrapper",
    "hyperkube",
    "k3s",
    "rke2",
    "k0s",
    "microshift",
];

/// Whether the program at this path runs a kubelet.
pub(crate) fn is_kubelet(program: &str) -> bool {
    KUBELETS.contains(&program.rsplit('/').next().unwrap_or_default())
}

impl Commands {
    /// The programs that the unit starts and that are running: paths, or argv[0].
    pub(crate) fn programs(&self) -> Vec<String> {
        let started = self.starts.iter().map(|(program, _)| program.clone());
        let running = self.running.iter().filter_map(|line| {
            let first = line.split_whitespace().next()?;
            Some(first.to_owned())
        });
        started.chain(running).collect()
    }

    /// Whether a process runs a kubelet, or, without a list of processes, whether the unit starts one.
    pub(crate) fn run_kubelet(&self) -> bool {
        let is_listed = self.unlisted.is_none();
        let mut programs =
            self.programs()
                .into_iter()
                .skip(if is_listed { self.starts.len() } else { 0 });
        programs.any(|program| is_kubelet(&program))
    }

    /// The flag of the processes; the last one, if a process has several.
    pub(crate) fn provider_flag(&self) -> ProviderFlag {
        let value = |line: &String| {
            let mut flags = running_flags(line.split_whitespace()).into_iter();
            let last = flags.rfind(|(name, _)| *name == CONFIG_FLAG);
            last.map(|(_, value)| value.unwrap_or_default().trim_matches('"').to_owned())
        };
        // A program that starts the kubelet may have its flags.
        let is_visible = |line: &String| {
            let program = line.split_whitespace().next().unwrap_or_default();
            program.rsplit('/').next() == Some("kubelet")
        };
        match self.running.iter().find_map(value) {
            Some(value) => ProviderFlag::Is(value),
            None if self.running.iter().any(is_visible) => ProviderFlag::Absent,
            None => ProviderFlag::Hidden,
        }
    }

    /// A credential provider flag in the arguments of the programs that the unit starts.
    pub(crate) fn own_provider_flag(&self) -> Option<String> {
        let arguments = self.starts.iter().map(|(_, arguments)| arguments);
        let mut flags = arguments.flat_map(|words| running_flags(words.iter().map(String::as_str)));
        let (name, value) = flags.next()?;
        Some(format!("{name}={}", value.unwrap_or_default()))
    }
}

impl Systemd {
    pub(crate) async fn commands(&self) -> Result<Commands, RestartError> {
        let connection = self.connect().await?;
        // Called for its error if the unit does not exist.
        self.facts_over(&connection).await?;
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
                // systemd may unload a stopped unit between two calls.
                Err(zbus::Error::MethodError(name, ..)) if name == NO_SUCH_UNIT => Ok(Vec::new()),
                processes => processes,
            };
            let mut commands = Commands {
                starts: starts.map(|command| (command.0, command.1)).collect(),
                environment_files: files.map(|(path, _)| path).collect(),
                ..Commands::default()
            };
            match processes.map_err(|source| self.error(source)) {
                Ok(processes) => {
                    commands.running = processes.into_iter().map(|(_, _, line)| line).collect();
                }
                // The list only adds knowledge.
                Err(error) if error.is_of_systemd() => {
                    commands.unlisted = Some(error.to_string());
                }
                Err(error) => return Ok(Err(error)),
            }
            zbus::Result::Ok(Ok(commands))
        };
        match timeout(CALL_TIMEOUT, ask).await {
            Ok(Ok(commands)) => commands,
            Ok(Err(source)) => Err(self.error(source)),
            Err(_) => Err(RestartError::Unresponsive),
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
            (
                "kubelet --config=a --image_credential_provider_config=b",
                Some("b"),
            ),
            ("kubelet --config=a --config-dir=b", Some("a")),
            ("kubelet --config=a -- --config=b", Some("a")),
            ("kubelet \"--config=a\"", None),
            ("kubelet --config=\"a\"", Some("a")),
        ] {
            let line = line.replace("--config", CONFIG_FLAG);
            let commands = Commands {
                running: vec!["sleep 1".to_owned(), line.clone()],
                ..Commands::default()
            };
            let expected = expected.map_or(ProviderFlag::Absent, |value| {
                ProviderFlag::Is(value.to_owned())
            });
            assert_eq!(commands.provider_flag(), expected, "{line}");
        }
    }

    #[test]
    fn only_a_visible_kubelet_lacks_the_flag() {
        for (line, expected) in [
            ("/usr/bin/kubelet --v=2", ProviderFlag::Absent),
            ("kubelet", ProviderFlag::Absent),
            ("/usr/local/bin/k3s agent", ProviderFlag::Hidden),
            ("/bin/sh /opt/kubelet", ProviderFlag::Hidden),
            // systemd's own text for a process that is ending.
            ("[kubelet]", ProviderFlag::Hidden),
            ("", ProviderFlag::Hidden),
        ] {
            let commands = Commands {
                running: vec!["sleep 1".to_owned(), line.to_owned()],
                ..Commands::default()
            };
            assert_eq!(commands.provider_flag(), expected, "{line}");
        }
    }
}
