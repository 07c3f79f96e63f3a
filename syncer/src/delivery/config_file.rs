//! Delivery by the credentials file: parses the file, adds and removes managed entries. Pure.

use globalps_core::rollout::Goal;
use globalps_dockerconfig::{DockerConfig, Entry, merge_on_node};

use crate::node::file::FileSnapshot;
use crate::node::managed::ManagedEntries;
use crate::node::state::{JournalState, PendingChange, ProviderChange};

/// Adapts a change from the journal to a file that another process wrote meanwhile: foreign entries stay, forward and back. How
/// far the change came is unknown, so managed entries of both sides count as managed. `None`: the file can't be parsed, so it has
/// nothing to keep.
pub(crate) fn rebase(
    change: &PendingChange,
    file: &FileSnapshot,
    state: &JournalState,
) -> Option<PendingChange> {
    let existing = parsed(file)?;
    let managed = change.managed();
    let among = |version: &FileSnapshot, wanted: &ManagedEntries| {
        wanted.among(&parsed(version).unwrap_or_default())
    };
    let (applied, overridden) = (managed.applied(), managed.overridden());
    let on_file = |wanted: &DockerConfig| merge_on_node(&existing, wanted, &applied, &overridden);
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
    Some(PendingChange {
        target,
        target_managed: change.target_managed.merged(&ahead),
        before,
        // A managed entry that was missing before has been replaced by the node's own, which must not be removed.
        before_managed: change.before_managed.merged(&back),
        ..change.clone()
    })
}

/// The part of the file that a kubelet can read; `None` if it is not a credentials file.
pub(crate) fn parsed(file: &FileSnapshot) -> Option<DockerConfig> {
    let FileSnapshot::File { bytes, .. } = file else {
        return Some(DockerConfig::default());
    };
    let config = globalps_dockerconfig::parse(bytes).ok()?;
    Some(config.without_unreadable())
}

/// Whether a kubelet ignores the file: one unreadable entry makes it ignore all of them.
pub(crate) fn is_unparsable(file: &FileSnapshot) -> bool {
    let FileSnapshot::File { bytes, .. } = file else {
        return false;
    };
    !globalps_dockerconfig::parse(bytes).is_ok_and(|config| config.is_kubelet_readable())
}

/// The file without managed entries, with the mode from before it was narrowed: the bytes of the snapshot if nothing else changed
/// since, otherwise the current file without managed entries, in its own bytes if it has none.
pub(crate) fn restored(
    unmanaged: &DockerConfig,
    file: &FileSnapshot,
    state: &JournalState,
) -> FileSnapshot {
    let before = parsed(&state.snapshot).unwrap_or_default();
    if unmanaged.means_the_same(&before) {
        state.snapshot.clone()
    } else if *file == FileSnapshot::Absent && unmanaged.is_empty() {
        // The file was removed, and there is nothing to write.
        FileSnapshot::Absent
    } else if parsed(file).is_some_and(|found| found.means_the_same(unmanaged))
        && !is_unparsable(file)
    {
        file.clone().with_mode(state.mode)
    } else {
        file.with_bytes(unmanaged.render()).with_mode(state.mode)
    }
}

/// Another program has written the whole file: it lacks entries that only globalps can have written.
pub(crate) fn is_replaced(file: &FileSnapshot, state: &JournalState) -> bool {
    let (Some(found), Some(content)) = (parsed(file), state.managed.content()) else {
        return *file == FileSnapshot::Absent;
    };
    let ours = only_ours([content], state);
    ours.entries().is_empty() || !has_all(&found, ours.entries())
}

/// Like [`is_replaced`], and the file contains nothing of globalps and all of the node's own entries that globalps had
/// overridden: it is the node's own file again.
pub(crate) fn is_own(file: &FileSnapshot, state: &JournalState) -> bool {
    let Some(found) = parsed(file) else {
        return false;
    };
    let found_keys = found.by_canonical_key();
    let overridden = state.managed.overridden();
    let ours = only_ours(state.managed.applied(), state);
    let mut each = ours.entries().iter();
    !is_unparsable(file)
        && *file != FileSnapshot::Absent
        && !ours.entries().is_empty()
        && !each.any(|entry| has_all(&found, std::slice::from_ref(entry)))
        && (overridden.iter()).all(|entry| found_keys.contains_key(&entry.canonical_key()))
}

/// Whether the file contains something that the node's own file did not have.
pub(crate) fn has_entries_of_its_own(state: &JournalState) -> bool {
    let content = state.managed.content();
    content.is_some_and(|content| !only_ours([content], state).entries().is_empty())
}

/// The managed entries that the node's own file did not have.
fn only_ours(
    versions: impl IntoIterator<Item = DockerConfig>,
    state: &JournalState,
) -> DockerConfig {
    let mut own = state.managed.overridden();
    own.extend_from_slice(parsed(&state.snapshot).unwrap_or_default().entries());
    let is_own = |entry: &Entry| {
        let key = entry.canonical_key();
        let mut own = own.iter();
        own.any(|own| own.canonical_key() == key && own.means_the_same(entry))
    };
    let entries = versions
        .into_iter()
        .flat_map(|version| version.entries().to_vec());
    DockerConfig::new(entries.filter(|entry| !is_own(entry)).collect())
}

fn has_all(found: &DockerConfig, entries: &[Entry]) -> bool {
    let found = found.by_canonical_key();
    let has = |entry: &Entry| {
        let found = found.get(&entry.canonical_key());
        found.is_some_and(|it| it.means_the_same(entry))
    };
    entries.iter().all(has)
}

/// Whether no other process has written the file since globalps merged its entries with the node's own.
pub(crate) fn is_as_written(file: &FileSnapshot, state: &JournalState) -> bool {
    let Some(content) = state.managed.content() else {
        return false;
    };
    let own = parsed(&state.snapshot).unwrap_or_default();
    let merged = merge_on_node(&own, &content, &[], &[]);
    let found = parsed(file).unwrap_or_default();
    !is_unparsable(file) && file.wide_mode().is_none() && merged.config.means_the_same(&found)
}
