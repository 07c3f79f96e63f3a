//! Delivery by the credentials file: parses the file, adds and removes managed entries. Pure.

use std::collections::BTreeSet;

use globalps_core::dockerconfig::{self, DockerConfig, merge_on_node};
use globalps_core::rollout::Goal;

use crate::node::file::FileSnapshot;
use crate::node::managed::ManagedEntries;
use crate::node::state::{Change, ProviderChange, State};

/// Adapts a change from the journal to a file that another process wrote meanwhile: foreign entries stay, forward and back. How
/// far the change came is unknown, so managed entries of both sides count as managed. `None`: the file can't be parsed, so it has
/// nothing to keep.
pub(crate) fn rebase(change: &Change, file: &FileSnapshot, state: &State) -> Option<Change> {
    let existing = parsed(file)?;
    let managed = change.managed();
    let among = |version: &FileSnapshot, wanted: &ManagedEntries| {
        wanted.among(&parsed(version).unwrap_or_default())
    };
    let on_file = |wanted: &DockerConfig| {
        merge_on_node(&existing, wanted, &managed.keys, &managed.overridden())
    };
    let narrowed = |file: FileSnapshot, managed: &ManagedEntries| {
        if managed.is_empty() {
            file
        } else {
            file.narrowed()
        }
    };
    let as_file = |config: &DockerConfig| {
        if config.means_the_same(&existing) && *file != FileSnapshot::Absent {
            file.clone()
        } else {
            file.with_bytes(config.render())
        }
    };
    let ahead = on_file(&among(&change.target, &change.target_managed));
    let had = among(&change.before, &change.before_managed);
    let back = on_file(&had);
    let has_provider = |provider: &ProviderChange| provider.target.installed.is_some();
    let target = match change.task.goal() {
        Goal::Restore => restored(&ahead.config, file, state),
        Goal::Revision(_) if change.provider.as_ref().is_some_and(has_provider) => {
            restored(&ahead.config, file, state)
        }
        Goal::Revision(_) => narrowed(as_file(&ahead.config), &change.target_managed),
    };
    // Don't create an empty file if there was none before or another process removed it.
    let was_absent = change.before == FileSnapshot::Absent || *file == FileSnapshot::Absent;
    let before = if was_absent && back.config.is_empty() {
        FileSnapshot::Absent
    } else {
        // The file may have been narrowed by this change.
        let file = as_file(&back.config).with_mode(change.before.wide_mode());
        narrowed(file, &change.before_managed)
    };
    Some(Change {
        target,
        target_managed: change.target_managed.merged(&ahead),
        before,
        // A managed entry that was missing before has been replaced by the node's own, which must not be removed.
        before_managed: change.before_managed.merged(&back),
        ..change.clone()
    })
}

/// The file's entries that a kubelet can read; `None`: the file is not a credentials file.
pub(crate) fn parsed(file: &FileSnapshot) -> Option<DockerConfig> {
    let FileSnapshot::File { bytes, .. } = file else {
        return Some(DockerConfig::default());
    };
    let config = dockerconfig::parse(bytes).ok()?;
    let readable = config
        .entries()
        .iter()
        .filter(|entry| entry.credential().is_ok())
        .cloned()
        .collect();
    Some(config.with_entries(readable))
}

/// Whether a kubelet ignores the file: one unreadable entry makes it ignore all of them.
pub(crate) fn is_unparsable(file: &FileSnapshot) -> bool {
    let FileSnapshot::File { bytes, .. } = file else {
        return false;
    };
    !dockerconfig::parse(bytes).is_ok_and(|config| config.is_kubelet_readable())
}

/// The file without managed entries, with the mode from before it was narrowed: the bytes of the snapshot if nothing else changed
/// since, otherwise the current file without managed entries.
pub(crate) fn restored(
    unmanaged: &DockerConfig,
    file: &FileSnapshot,
    state: &State,
) -> FileSnapshot {
    let before = parsed(&state.snapshot).unwrap_or_default();
    if unmanaged.means_the_same(&before) {
        state.snapshot.clone()
    } else if *file == FileSnapshot::Absent && unmanaged.is_empty() {
        // It was removed, and there is nothing to write.
        FileSnapshot::Absent
    } else {
        file.with_bytes(unmanaged.render()).with_mode(state.mode)
    }
}

/// Another program has written the file, without a managed entry in it.
pub(crate) fn has_none_of(file: &FileSnapshot, managed: &ManagedEntries) -> bool {
    let (Some(found), Some(content)) = (parsed(file), managed.content()) else {
        return *file == FileSnapshot::Absent;
    };
    let found = found.by_canonical_key();
    let content = content.by_canonical_key();
    let mut content = content.iter();
    !content.any(|(key, entry)| found.get(key).is_some_and(|it| it.means_the_same(entry)))
}

/// Nobody has written the file since globalps merged its entries with the node's own.
pub(crate) fn is_as_written(file: &FileSnapshot, state: &State) -> bool {
    let Some(content) = state.managed.content() else {
        return false;
    };
    let own = parsed(&state.snapshot).unwrap_or_default();
    let merged = merge_on_node(&own, &content, &BTreeSet::new(), &[]);
    let found = parsed(file).unwrap_or_default();
    !is_unparsable(file) && file.wide_mode().is_none() && merged.config.means_the_same(&found)
}
