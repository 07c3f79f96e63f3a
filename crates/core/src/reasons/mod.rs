//! The catalogue of reasons: each one that a program writes into a status, a condition or an event, what it means, and what
//! `check` prints about it. Pages and `check` take their words from here.

/// A table: for each reason of what it is, what `check` prints, and the meaning. A macro, so that a row is a line.
macro_rules! rows {
    ($(#[$doc:meta])* $name:ident $($of:expr => $reason:ident, $finding:expr, $meaning:literal;)*) => {
        $(#[$doc])*
        pub const $name: &[super::Row] = &[$({
            let (of, status) = $of;
            super::Row { of, status, reason: super::Reason::$reason, meaning: $meaning, finding: $finding }
        }),*];
    };
}

mod clusters;
mod deliveries;
mod events;
mod guide;
mod nodes;
mod rollout;
mod secrets;

use std::fmt;

pub use clusters::{
    CLUSTERS, CLUSTERS_BLOCKED, CLUSTERS_FAILED, CLUSTERS_LEFT, CLUSTERS_TAKEN,
    CLUSTERS_UNREACHABLE, FLEET_FOLLOW, FLEETS, SHOWN,
};
pub use deliveries::{NAMESPACES, OPERATORS, OPERATORS_INSTALL, PULL_SECRET, WRITES, of_operator};
pub use events::{CLUSTER_EVENTS, EVENTS, event_type};
pub use guide::NODE_SECTIONS;
pub use nodes::{NODE_UNREACHABLE, NODES, UNSUPPORTED};
pub use rollout::{CANARY, NO_DELIVERY, ROLLOUT};
pub use secrets::{CREDENTIALS, SECRETS};

use crate::api::{Phase, condition as types};

macro_rules! reasons {
    ($($name:ident)*) => {
        /// The code in the API. One code may be a reason of several things, each with a row of its own.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "its rows say what each means")]
        pub enum Reason { $($name),* }

        impl Reason {
            /// Each once.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The reason in the API.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),* }
            }
        }
    };
}

reasons! {
    Absent Accepted AdditionalInvalid AllRunning AnotherSyncer AnotherWriter AsExpected BadEntries CertificateExpired Changed CleaningUp
    ClustersBlocked ClustersFailed ClustersUnreachable Complete ConfigFileDiffers ConfigMissing Conflict ConflictLimit
    ConnectionRefused CredentialsAccepted CredentialsExpired CredentialsExpiring CredentialsRejected CredentialsRenewed Deleting
    DiskFull DriftCorrected DriftRepaired DuplicateCluster Expired ExpiringSoon ExpiringWithinAnHour FileError FileOutdated
    FileQuarantined FileTooLarge FileUnusable Forbidden ForeignProviderConfig ForeignSecret Forgotten Halted Held IdentityAccepted IdentityChanged Immutable
    ImmutableFile InForceWithinFiveMinutes InstallForbidden Installing Invalid InvalidRequest InvalidSettings IsHub KeysOfOthers KubeconfigInvalid
    KubeconfigTooLarge KubeletDidNotStart KubeletDown KubeletRecovered KubeletUnit Listing ManagedFile Merged ModeNarrowed
    NameNotResolved NamespaceForbidden NamespaceNotTrusted NamespacesFailed NamespacesSynced NoAdditional NoCanary NoClusters
    NoDelivery NoDirectory NoGlobalPullSecret NoGlobalps NoImagePullSecret NoKubeconfig NoNodes NoSource NoSyncer NodeDegraded NodeFailed
    NodeFile NodeRolledBack NodesBlocked NodesFailed NodesHaveOld NodesNotRestored NodesUpdating NoneExpiring NotARegularFile NotFound
    NotInstalled NotPermitted NotReachable NotReported NotRunning NotWritten NothingToDo OldForgotten OperatorsFailed OperatorsSynced
    OriginalUnreadable Paused PlatformKey PodsNotCreated PoolPaused ProviderFailed ProviderNotPossible ProviderPathsDiffer Proxy QuotaExceeded
    ReadOnlyDisk ReconcileFailed Rejected Removing ResponseTooLarge RestartDelayed RestartNever RestartNotPossible Restored
    Restoring Revoked RolledBack RolledOut RollingOut RolloutHalted SecretNotRead SelectorInvalid ServerError ServiceAccountMissing
    SourceAbsent SourceForbidden SourceInvalid SourceMissing SourceUnreadable StateDamaged StateLost StateTooNew
    StillInForce Superseded Synced SyncersRolling SystemBusUnavailable SystemdError TargetTaken Terminating TimedOut Timeout
    TlsFailed TooLarge TooManyAccounts TooManyClusters TooManyReferences Unauthorized Unavailable UnknownAuthority Unreachable
    Unreadable UpdatedInPlace Valid Verifying VirtualNode WaitingForCanary WaitingForConfirmation WaitingForMachineConfig WaitingForMerge WaitingForRollout WaitingForSyncers
    WriteFailed WrongServerName
    WrongType
}

/// Reason and message of a status.
pub type ReasonAndMessage = (Reason, String);

impl Reason {
    /// `None`: a newer release, or something else, wrote it.
    pub fn parse(code: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|reason| reason.as_str() == code)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl From<Reason> for String {
    fn from(reason: Reason) -> Self {
        reason.as_str().to_owned()
    }
}

impl From<Reason> for &'static str {
    fn from(reason: Reason) -> Self {
        reason.as_str()
    }
}

impl PartialEq<Reason> for str {
    fn eq(&self, other: &Reason) -> bool {
        self == other.as_str()
    }
}

impl PartialEq<Reason> for String {
    fn eq(&self, other: &Reason) -> bool {
        self == other.as_str()
    }
}

/// How `check` prints a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Requires no action.
    Info,
    /// It works, but something may be wrong.
    Warning,
    /// It does not work.
    Error,
}

/// The output of `check`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Name of the check. Of a warning or an error, also the section of the guide; empty: there is none.
    pub section: &'static str,
    /// Whether the user must act.
    pub severity: Severity,
    /// Before the message of the object; may be empty.
    pub what: &'static str,
    /// The next step; empty if the check passes, or if it depends on the message.
    pub hint: &'static str,
}

impl Finding {
    /// The finding's message, completed by the object's message.
    pub fn message(&self, message: &str) -> String {
        match (self.what, message) {
            ("", only) | (only, "") => only.to_owned(),
            (what, message) => format!("{what}: {message}"),
        }
    }
}

const fn ok(section: &'static str, what: &'static str) -> Finding {
    Finding {
        section,
        severity: Severity::Info,
        what,
        hint: "",
    }
}

const fn warning(section: &'static str, what: &'static str, hint: &'static str) -> Finding {
    Finding {
        section,
        severity: Severity::Warning,
        what,
        hint,
    }
}

const fn error(section: &'static str, what: &'static str, hint: &'static str) -> Finding {
    Finding {
        section,
        severity: Severity::Error,
        what,
        hint,
    }
}

/// The phases of a node or cluster that have the reason, the type of the condition or of the event; and the condition's status.
type Of = (&'static str, &'static str);

/// A reason of one thing.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Phases of a node or cluster, or the type of a condition or event.
    pub of: &'static str,
    /// Only for a condition.
    pub status: &'static str,
    /// One row for each object that has the reason.
    pub reason: Reason,
    /// Markdown, for the pages.
    pub meaning: &'static str,
    /// `None`: `check` reports it in another line, or not at all.
    pub finding: Option<Finding>,
}

impl Row {
    /// The section of the guide; `None` if the reason has none of its own.
    pub fn section(&self) -> Option<&'static str> {
        let finding = self.finding.filter(|it| it.severity != Severity::Info);
        finding.map(|it| it.section).filter(|it| !it.is_empty())
    }
}

const YES: &str = "True";
const NO: &str = "False";
const UNKNOWN: &str = "Unknown";

/// The program that writes a table's reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// Writes them into the status of `NodePullSecret`s.
    Syncer,
    /// Writes them into the status of the `GlobalPullSecret`, and into events.
    Controller,
    /// Writes them into the status of fleets and clusters, and into events.
    Hub,
    /// Only shows them.
    Plugin,
}

/// The whole catalogue, by who writes it.
pub const TABLES: [(Writer, &[Row]); 14] = [
    (Writer::Syncer, NODES),
    (Writer::Controller, UNSUPPORTED),
    (Writer::Controller, ROLLOUT),
    (Writer::Controller, SECRETS),
    (Writer::Controller, CREDENTIALS),
    (Writer::Controller, NAMESPACES),
    (Writer::Controller, OPERATORS),
    (Writer::Controller, PULL_SECRET),
    (Writer::Controller, WRITES),
    (Writer::Controller, EVENTS),
    (Writer::Hub, CLUSTERS),
    (Writer::Hub, FLEETS),
    (Writer::Hub, CLUSTER_EVENTS),
    (Writer::Plugin, SHOWN),
];

/// The finding for a node in this phase, by its reason or, without a row, by its phase. `None` if nothing is wrong.
pub fn of_node(phase: &Phase, reason: &str) -> Option<Finding> {
    let of_reason = NODES.iter().find(|row| *reason == row.reason);
    of_reason.and_then(|row| row.finding).or(match phase {
        Phase::RolledBack => Some(nodes::ROLLED_BACK),
        Phase::ForeignOwner => Some(nodes::FOREIGN_OWNER),
        Phase::Failed => Some(nodes::FAILED),
        Phase::Unreadable => Some(nodes::UNREADABLE),
        _ => None,
    })
}

/// The tables of the conditions of a `GlobalPullSecret`.
pub const CONDITIONS: [&[Row]; 6] = [
    ROLLOUT,
    SECRETS,
    CREDENTIALS,
    NAMESPACES,
    OPERATORS,
    PULL_SECRET,
];

/// The finding for a condition of the `GlobalPullSecret`. The first row of a type and status also covers reasons of a
/// newer release, except for the three conditions that summarize the others.
pub fn of_condition(type_: &str, status: &str, reason: &str) -> Option<Finding> {
    let rows = CONDITIONS.into_iter().flatten();
    let mut rows = rows.filter(|row| (row.of, row.status) == (type_, status));
    let first = rows.clone().next();
    let first =
        first.filter(|_| ![types::READY, types::PROGRESSING, types::DEGRADED].contains(&type_));
    rows.find(|row| *reason == row.reason).or(first)?.finding
}

/// The finding for a `FleetPullSecret` whose rollout is blocked for this reason.
pub fn of_fleet(reason: Reason) -> Option<Finding> {
    let mut rows = FLEETS.iter().chain(SHOWN);
    rows.find_map(|row| row.finding.filter(|_| row.reason == reason))
}
