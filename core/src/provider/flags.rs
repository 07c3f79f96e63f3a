//! The kubelet's credential provider flags in kubeadm's flags file, a systemd `EnvironmentFile`. Pure.

/// Variable in the file that kubeadm's unit passes to the kubelet.
pub const FLAGS_VARIABLE: &str = "KUBELET_KUBEADM_ARGS";
/// The kubelet's flags for credential providers: the configuration, and the directory of binaries.
pub const CONFIG_FLAG: &str = "--image-credential-provider-config";
pub const BIN_DIR_FLAG: &str = "--image-credential-provider-bin-dir";

/// Why the flags can't be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagsError {
    #[error("it is not UTF-8 text")]
    NotText,
    #[error("it must set `{FLAGS_VARIABLE}` exactly once, on one line and in double quotes")]
    NoVariable,
    /// The flag with its value.
    #[error("it sets `{0}` already")]
    Foreign(String),
    #[error("the provider's path has characters that are not possible in the flags")]
    Path,
}

/// The flags as the kubelet gets them, with a leading space.
pub fn flags(config: &str, bin_dir: &str) -> String {
    format!(" {CONFIG_FLAG}={config} {BIN_DIR_FLAG}={bin_dir}")
}

/// The file with these flags at the end of the variable's value. Earlier flags with the same paths are replaced, so adding is
/// idempotent.
pub fn add_flags(file: &[u8], config: &str, bin_dir: &str) -> Result<Vec<u8>, FlagsError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    if !config.bytes().chain(bin_dir.bytes()).all(is_plain) {
        return Err(FlagsError::Path);
    }
    let file = remove_flags(file, config, bin_dir);
    let text = str::from_utf8(&file).map_err(|_| FlagsError::NotText)?;
    for flag in [CONFIG_FLAG, BIN_DIR_FLAG] {
        if let Some(at) = text.find(flag) {
            let end = |c: char| c.is_whitespace() || c == '"';
            let set = text[at..].split(end).next().unwrap_or_default();
            return Err(FlagsError::Foreign(set.chars().take(256).collect()));
        }
    }
    let end = end_of_value(text).ok_or(FlagsError::NoVariable)?;
    let flags = flags(config, bin_dir);
    Ok([&text[..end], &flags, &text[end..]].concat().into_bytes())
}

/// The file without what [`add_flags`] added; unchanged if it contains none of it.
pub fn remove_flags(file: &[u8], config: &str, bin_dir: &str) -> Vec<u8> {
    let Ok(text) = str::from_utf8(file) else {
        return file.to_vec();
    };
    let flags = flags(config, bin_dir);
    let is_end = |at: &usize| {
        let next = text[at + flags.len()..].chars().next();
        matches!(next, None | Some('"' | ' ' | '\t' | '\r' | '\n'))
    };
    let mut found = text.match_indices(&flags).map(|(at, _)| at);
    found.find(is_end).map_or_else(
        || file.to_vec(),
        |at| {
            [&text[..at], &text[at + flags.len()..]]
                .concat()
                .into_bytes()
        },
    )
}

/// Offset of the closing quote of the variable's value.
fn end_of_value(text: &str) -> Option<usize> {
    let mut at = 0;
    let mut ends = Vec::new();
    for line in text.split_inclusive('\n') {
        let content = line.trim_end();
        let assigned = content.trim_start().strip_prefix(FLAGS_VARIABLE);
        if let Some(value) = assigned.and_then(|rest| rest.strip_prefix('=')) {
            let inner = value.strip_prefix('"')?.strip_suffix('"')?;
            if inner.contains(['"', '\\']) {
                return None;
            }
            ends.push(at + content.len() - 1);
        }
        at += line.len();
    }
    match ends[..] {
        [end] => Some(end),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const CONFIG: &str = "/var/lib/kubelet/.globalps/provider.yaml";
    const BIN_DIR: &str = "/var/lib/kubelet/.globalps/bin";
    const OURS: &str = " --image-credential-provider-config=/var/lib/kubelet/.globalps/provider.yaml \
                        --image-credential-provider-bin-dir=/var/lib/kubelet/.globalps/bin";

    #[test]
    fn adding_and_removing_the_flags_restores_every_byte() {
        for (before, after) in [
            (
                "KUBELET_KUBEADM_ARGS=\"--v=2\"\n",
                "KUBELET_KUBEADM_ARGS=\"--v=2{}\"\n",
            ),
            ("KUBELET_KUBEADM_ARGS=\"\"", "KUBELET_KUBEADM_ARGS=\"{}\""),
            (
                "# mine\r\nA=\"x\"\r\nKUBELET_KUBEADM_ARGS=\"--a=b --c\"  \r\n\r\nB=1",
                "# mine\r\nA=\"x\"\r\nKUBELET_KUBEADM_ARGS=\"--a=b --c{}\"  \r\n\r\nB=1",
            ),
        ] {
            let with = add_flags(before.as_bytes(), CONFIG, BIN_DIR).unwrap();
            assert_eq!(String::from_utf8_lossy(&with), after.replace("{}", OURS));
            assert_eq!(add_flags(&with, CONFIG, BIN_DIR).unwrap(), with, "twice");
            assert_eq!(remove_flags(&with, CONFIG, BIN_DIR), before.as_bytes());
            assert_eq!(
                remove_flags(before.as_bytes(), CONFIG, BIN_DIR),
                before.as_bytes()
            );
        }
    }

    #[test]
    fn unsupported_files_are_rejected() {
        for (file, error) in [
            ("", FlagsError::NoVariable),
            ("KUBELET_KUBEADM_ARGS=--v=2\n", FlagsError::NoVariable),
            ("KUBELET_KUBEADM_ARGS='--v=2'\n", FlagsError::NoVariable),
            (
                "KUBELET_KUBEADM_ARGS=\"--v=2 \\\n--a\"\n",
                FlagsError::NoVariable,
            ),
            (
                "KUBELET_KUBEADM_ARGS=\"--a=\\\"b\\\"\"\n",
                FlagsError::NoVariable,
            ),
            (
                "KUBELET_KUBEADM_ARGS=\"a\"\nKUBELET_KUBEADM_ARGS=\"b\"\n",
                FlagsError::NoVariable,
            ),
            ("#KUBELET_KUBEADM_ARGS=\"a\"\n", FlagsError::NoVariable),
            (
                "KUBELET_KUBEADM_ARGS=\"--image-credential-provider-config=/etc/x\"\n",
                FlagsError::Foreign("--image-credential-provider-config=/etc/x".to_owned()),
            ),
            (
                "KUBELET_KUBEADM_ARGS=\"--image-credential-provider-bin-dir /x\"\n",
                FlagsError::Foreign("--image-credential-provider-bin-dir".to_owned()),
            ),
        ] {
            assert_eq!(
                add_flags(file.as_bytes(), CONFIG, BIN_DIR),
                Err(error),
                "{file}"
            );
        }
        assert_eq!(
            add_flags(b"\xff", CONFIG, BIN_DIR),
            Err(FlagsError::NotText)
        );
        let file = b"KUBELET_KUBEADM_ARGS=\"\"\n";
        for path in ["/a b", "/a\"", "/a$b", "/a\nb", "/\u{e9}"] {
            assert_eq!(
                add_flags(file, path, BIN_DIR),
                Err(FlagsError::Path),
                "{path}"
            );
        }
    }

    #[test]
    fn flags_with_a_longer_path_are_foreign() {
        let theirs = format!("KUBELET_KUBEADM_ARGS=\"{OURS}-of-theirs\"\n");
        let found = remove_flags(theirs.as_bytes(), CONFIG, BIN_DIR);
        assert_eq!(found, theirs.as_bytes());
    }
}
