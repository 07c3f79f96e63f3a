//! The kubelet's credential provider flags in kubeadm's flags file, a systemd `EnvironmentFile`. Pure.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::environment_file::{VariableAssignment, Word, assignments};

/// Variable in the file that kubeadm's unit passes to the kubelet.
pub const FLAGS_VARIABLE: &str = "KUBELET_KUBEADM_ARGS";
/// The kubelet's flag for the file of all credential providers' configuration.
pub const CONFIG_FLAG: &str = "--image-credential-provider-config";
/// The flag for the directory in which the kubelet runs programs as root.
pub const BIN_DIR_FLAG: &str = "--image-credential-provider-bin-dir";

/// Why the flags can't be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each says it in its message")]
pub enum FlagsError {
    #[error("it is not UTF-8 text")]
    NotText,
    #[error("it must set `{FLAGS_VARIABLE}` in a form that systemd reads")]
    NoVariable,
    /// The flag with its value.
    #[error("it sets `{0}` already")]
    Foreign(String),
    #[error("the provider's path has characters that are not possible in the flags")]
    Path,
}

/// A credential provider flag, as the kubelet reads its command line.
struct Flag {
    name: &'static str,
    /// `None`: the command line ends before it.
    value: Option<Vec<u8>>,
    /// `--name=value` is one word, `--name value` is two.
    words: Range<usize>,
}

impl Flag {
    fn is_ours(&self, config: &str, bin_dir: &str) -> bool {
        let ours = if self.name == CONFIG_FLAG {
            config
        } else {
            bin_dir
        };
        let value = self.value.as_deref().map(OsStr::from_bytes);
        value.map(Path::new) == Some(Path::new(ours))
    }

    fn text(&self) -> String {
        let value = self.value.as_deref().unwrap_or_default();
        let text = format!("{}={}", self.name, String::from_utf8_lossy(value));
        text.chars().take(256).collect()
    }
}

/// The credential provider flags among these words. The kubelet takes `_` in a name for `-`, and no flags after `--`.
fn provider_flags(words: &[Word]) -> Vec<Flag> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at).filter(|word| word.text != b"--") {
        let mut parts = word.text.splitn(2, |byte| *byte == b'=');
        let name = String::from_utf8_lossy(parts.next().unwrap_or_default()).replace('_', "-");
        let own = parts.next().map(<[u8]>::to_vec);
        let name = [CONFIG_FLAG, BIN_DIR_FLAG]
            .into_iter()
            .find(|flag| *flag == name);
        let next = if name.is_some() && own.is_none() {
            at + 2
        } else {
            at + 1
        };
        found.extend(name.map(|name| Flag {
            name,
            value: own.or_else(|| Some(words.get(at + 1)?.text.clone())),
            words: at..next,
        }));
        at = next;
    }
    found
}

/// The credential provider flags of a command line, with their values, as the kubelet reads them.
pub fn running_flags<'a>(
    words: impl IntoIterator<Item = &'a str>,
) -> Vec<(&'static str, Option<String>)> {
    let words: Vec<_> = words.into_iter().map(Word::of).collect();
    let text = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
    let flags = provider_flags(&words).into_iter();
    flags
        .map(|flag| (flag.name, flag.value.map(text)))
        .collect()
}

/// Whether this word is a flag that may take the next word as its value.
fn may_take_next(word: &Word) -> bool {
    word.text.starts_with(b"-") && !word.text.contains(&b'=')
}

/// The flags in the form in which they are added.
fn flags(config: &str, bin_dir: &str) -> String {
    format!("{CONFIG_FLAG}={config} {BIN_DIR_FLAG}={bin_dir}")
}

/// The file in which the variable has these flags, and otherwise the same bytes. Unchanged if it has both in any form and place.
pub fn add_flags(file: &[u8], config: &str, bin_dir: &str) -> Result<Vec<u8>, FlagsError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    if !config.bytes().chain(bin_dir.bytes()).all(is_plain) {
        return Err(FlagsError::Path);
    }
    let all = assignments(file);
    if file.contains(&0) || !all.iter().all(VariableAssignment::is_text) {
        return Err(FlagsError::NotText);
    }
    for assignment in all {
        let mut found = provider_flags(&assignment.words()).into_iter();
        if let Some(flag) = found.find(|flag| !flag.is_ours(config, bin_dir)) {
            return Err(FlagsError::Foreign(flag.text()));
        }
    }
    if has_both(file, config, bin_dir) {
        return Ok(file.to_vec());
    }
    let file = remove_flags(file, config, bin_dir);
    let assignment = effective(&file).ok_or(FlagsError::NoVariable)?;
    // A word at the end may take the next one as its value, or end the flags: then they come first.
    let edited = [false, true].into_iter().find_map(|is_first| {
        let (edited, place) = assignment.with_words(&file, &flags(config, bin_dir), is_first);
        let words = effective(&edited)?.words();
        let is_taken = place
            .checked_sub(1)
            .is_some_and(|at| may_take_next(&words[at]));
        let is_restored = remove_flags(&edited, config, bin_dir) == file;
        (!is_taken && is_restored && has_both(&edited, config, bin_dir)).then_some(edited)
    });
    edited.ok_or(FlagsError::NoVariable)
}

/// The assignment that systemd passes to the kubelet.
fn effective(file: &[u8]) -> Option<VariableAssignment> {
    let mut all = assignments(file).into_iter();
    let last = all.rfind(|assignment| assignment.name == FLAGS_VARIABLE.as_bytes());
    last.filter(VariableAssignment::is_valid)
}

fn has_both(file: &[u8], config: &str, bin_dir: &str) -> bool {
    let words = effective(file).map(|assignment| assignment.words());
    let found = provider_flags(&words.unwrap_or_default());
    [CONFIG_FLAG, BIN_DIR_FLAG].iter().all(|name| {
        let mut found = found.iter().filter(|flag| flag.name == *name);
        found.any(|flag| flag.is_ours(config, bin_dir))
    })
}

/// The file without any flag that has one of these paths; unchanged if it has none. Undoes [`add_flags`] to the byte.
pub fn remove_flags(file: &[u8], config: &str, bin_dir: &str) -> Vec<u8> {
    let mut edited = file.to_vec();
    // Backward, so that the places of the others stay.
    for assignment in assignments(file).iter().rev() {
        let flags = provider_flags(&assignment.words());
        let ours: Vec<_> = flags
            .iter()
            .filter(|flag| flag.is_ours(config, bin_dir))
            .collect();
        if !ours.is_empty() {
            let is_removed = |word| ours.iter().any(|flag| flag.words.contains(&word));
            edited = assignment.without_words(&edited, is_removed);
        }
    }
    edited
}

#[cfg(test)]
mod tests;
