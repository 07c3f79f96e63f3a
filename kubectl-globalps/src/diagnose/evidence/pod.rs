//! The credentials of a container that waits for its image, and what the registry says of them.

use crate::cli::Asking;
use crate::cluster::Cluster;
use crate::credentials::live_check::ask_each;
use crate::diagnose::evidence::facts::{adding, asked_with, has_image};
use crate::diagnose::evidence::image::{PullerSeen, Shared, asked, node_secret};
use crate::diagnose::pull::{Answer, Asked};
use crate::diagnose::tried::{NoReference, Origin, Tried};
use crate::diagnose::why::{
    Adding, CommandTarget, Evidence, Explained, Failing, Lag, PodSeen, Said, Tested, Use,
};
use crate::error::{Result, allowed};
use crate::registry::Trust;
use crate::secret::history::{StoredRevision, sorted};
use crate::target::history::slots;
use globalps_dockerconfig::{Credential, attempts};
use globalps_registry::{Checker, ImageName, Pull, RegistryError};
use k8s_openapi::api::core::v1::ServiceAccount;

/// Maximum number of requests to registries.
const MOST_ASKED: usize = 200;

/// A request to a registry: an image, with a credential or without.
#[derive(Clone, PartialEq, Eq)]
struct PullQuestion {
    image: ImageName,
    credential: Option<Credential>,
}

type Answers = [(PullQuestion, Result<Pull, RegistryError>)];

/// The facts for all containers together.
pub(crate) struct PodFindings {
    answers: Vec<(PullQuestion, Result<Pull, RegistryError>)>,
    /// Earlier additional pull secrets, newest first.
    earlier: Vec<StoredRevision>,
    adding: Adding,
    /// See [`asked_with`].
    asked_with: String,
}

/// Asks the registries, and reads what the answers make necessary. `trust`: `None` if no registry is contacted.
pub(crate) async fn findings(
    cluster: &Cluster<'_>,
    shared: &Shared,
    looked: &[&Looked],
    trust: Option<Trust>,
    asking: &Asking,
) -> Result<PodFindings> {
    let mut questions: Vec<PullQuestion> = Vec::new();
    for question in looked.iter().flat_map(|looked| looked.questions()) {
        if questions.len() < MOST_ASKED && !questions.contains(&question) {
            questions.push(question);
        }
    }
    let pull = async |checker: &Checker, asked: &PullQuestion| {
        checker.pull(&asked.image, asked.credential.as_ref()).await
    };
    let answers = match trust {
        Some(trust) if !questions.is_empty() => {
            ask_each(&questions, trust, asking, cluster.printer(), pull).await
        }
        _ => Vec::new(),
    };
    let answers: Vec<_> = questions.into_iter().zip(answers).collect();
    Ok(PodFindings {
        earlier: earlier(cluster, shared, looked, &answers).await?,
        adding: adding(cluster, shared).await?,
        answers,
        asked_with: asked_with(asking),
    })
}

/// Only read if a credential of globalps is rejected; empty for a user who may not read them.
async fn earlier(
    cluster: &Cluster<'_>,
    shared: &Shared,
    looked: &[&Looked],
    answers: &Answers,
) -> Result<Vec<StoredRevision>> {
    let is_rejected = || looked.iter().any(|it| it.is_rejected(answers));
    let Some(gps) = shared.gps.as_ref().filter(|_| is_rejected()) else {
        return Ok(Vec::new());
    };
    let found = allowed(slots(cluster, gps.spec.history_limit).await)?;
    Ok(sorted(found.unwrap_or_default(), None))
}

/// The cluster's state for a container's image.
pub(crate) struct Looked {
    failing: Failing,
    /// `None` if the image name is invalid.
    image: Option<ImageName>,
    pub tries: Vec<Tried>,
    excluding: Option<(String, String)>,
    unreadable: Option<(String, Origin)>,
    no_reference: Option<NoReference>,
    is_terminating: bool,
    lag: Option<Lag>,
    is_present: bool,
    notes: Vec<String>,
}

/// Lists the credentials for the container's image.
pub(crate) async fn look(
    cluster: &Cluster<'_>,
    shared: &Shared,
    of: &PullerSeen,
    (seen, failing): (&PodSeen, Failing),
) -> Result<Looked> {
    let is_of_runtime = failing.used == Use::Sandbox;
    let mut asked = if is_of_runtime {
        let image = failing.image.clone();
        Asked {
            image,
            ..Asked::default()
        }
    } else {
        asked(cluster, shared, &failing.image, of, true).await?
    };
    let lag = match seen.node.as_str() {
        _ if is_of_runtime => None,
        "" => None,
        node => Lag::of(
            shared.gps.as_ref(),
            &node_secret(cluster, shared, node).await?,
        ),
    };
    let is_present = failing.said() == Said::NeverPulled
        && has_image(cluster, &seen.node, &failing.image).await?;
    let (no_reference, is_terminating) = (asked.no_reference.take(), asked.is_terminating);
    let Ok(answer) = Answer::of(asked) else {
        return Ok(Looked {
            is_terminating,
            ..Looked::without_name(failing)
        });
    };
    // The kubelet's message is shown anyway.
    let notes = answer
        .notes()
        .iter()
        .filter(|it| !it.starts_with("the kubelet says"));
    Ok(Looked {
        image: Some(ImageName::of(&failing.image, answer.repository())),
        tries: answer.tries().to_vec(),
        excluding: answer
            .excluding()
            .map(|(a, b)| (a.to_owned(), b.to_owned())),
        unreadable: answer.unreadable().map(|(a, b)| (a.to_owned(), b.clone())),
        notes: notes.cloned().collect(),
        failing,
        no_reference,
        is_terminating,
        lag,
        is_present,
    })
}

impl Looked {
    /// Judged only by the kubelet's message.
    pub(crate) fn without_name(failing: Failing) -> Self {
        Self {
            failing,
            image: None,
            tries: Vec::new(),
            excluding: None,
            unreadable: None,
            no_reference: None,
            is_terminating: false,
            lag: None,
            is_present: false,
            notes: Vec::new(),
        }
    }

    fn questions(&self) -> Vec<PullQuestion> {
        let Some(image) = self.image.as_ref().filter(|_| self.unreadable.is_none()) else {
            return Vec::new();
        };
        let question = |credential| PullQuestion {
            image: image.clone(),
            credential,
        };
        if self.tries.is_empty() {
            return vec![question(None)];
        }
        // Finally asks without credentials: even a pull of a public image fails if its credentials are rejected.
        let tries = self.tries.iter();
        let tries = tries.map(|tried| question(Some(tried.credential.clone())));
        tries.chain([question(None)]).collect()
    }

    /// Whether a credential of globalps is rejected.
    fn is_rejected(&self, answers: &Answers) -> bool {
        let questions = self.questions();
        let is_refused = |question: &PullQuestion| {
            let mut refused = answers
                .iter()
                .filter(|(_, answer)| answer.as_ref().is_err_and(RegistryError::is_refusal));
            refused.any(|(asked, _)| asked == question)
        };
        let is_denied = self.failing.said() == Said::Denied;
        let mut tries = self.tries.iter().zip(&questions);
        tries.any(|(tried, question)| {
            tried.origin == Origin::Globalps && (is_denied || is_refused(question))
        })
    }

    /// The newest revision whose credential for the image is not among those tried now.
    fn other_revision(&self, earlier: &[StoredRevision]) -> Option<i64> {
        let is_other = |revision: &&StoredRevision| {
            let tries = attempts(&[&revision.config], &self.failing.image).unwrap_or_default();
            let is_tried = |credential: &Credential| {
                let mut now = self.tries.iter();
                now.any(|tried| tried.credential == *credential)
            };
            let first = tries.first();
            first.is_some_and(|(_, first)| !is_tried(&first.credential))
        };
        earlier.iter().find(is_other).map(|found| found.number)
    }

    pub(crate) fn explained(
        &self,
        pod: &PodSeen,
        place: &CommandTarget<'_>,
        known: &PodFindings,
    ) -> Explained {
        let questions = self.questions();
        let answer_to = |question: &PullQuestion| {
            let found = known.answers.iter().find(|(asked, _)| asked == question);
            found.map(|(_, answer)| answer.clone())
        };
        let tries: Vec<Tested<'_>> = self
            .tries
            .iter()
            .zip(&questions)
            .map(|(tried, question)| Tested {
                tried,
                answer: answer_to(question),
            })
            .collect();
        let anonymous = questions.first().filter(|_| self.tries.is_empty());
        let anonymous = anonymous.and_then(answer_to);
        let public = questions.last().filter(|_| !self.tries.is_empty());
        let public = public.and_then(answer_to);
        let image = self.image.as_ref();
        let evidence = Evidence {
            pod,
            failing: &self.failing,
            registry: image.map_or("", ImageName::registry),
            repository: image.map_or("", |image| &image.repository),
            tries: &tries,
            anonymous: anonymous.as_ref(),
            is_public: public == Some(Ok(Pull::Available)),
            excluding: self
                .excluding
                .as_ref()
                .map(|(a, b)| (a.as_str(), b.as_str())),
            unreadable: self.unreadable.as_ref().map(|(a, b)| (a.as_str(), b)),
            no_reference: self.no_reference.as_ref(),
            lag: self.lag.as_ref(),
            is_present: self.is_present,
            adding: &known.adding,
            secrets: place.secrets,
            earlier: self.other_revision(&known.earlier),
            asked_with: &known.asked_with,
        };
        let cause = if self.is_terminating {
            evidence.namespace_terminating()
        } else {
            evidence.cause().at(place)
        };
        let notes: Vec<String> = self.notes.iter().map(|note| place.text(note)).collect();
        Explained::of(&self.failing, &tries, anonymous.as_ref(), &notes, cause)
    }
}

/// The API server copies the Secrets of the service account into the pod.
pub(crate) fn name_account(tried: &mut Tried, pod: &PodSeen, account: Option<&ServiceAccount>) {
    let references = account.and_then(|account| account.image_pull_secrets.as_ref());
    let is_own = references.into_iter().flatten().any(|reference| {
        let title = format!("Secret {}/{}", pod.namespace, reference.name);
        tried.source == title || tried.source.starts_with(&format!("{title},"))
    });
    if is_own && !tried.origin.is_delivered() {
        let account = &pod.service_account;
        tried.source = format!("{}, of service account `{account}`", tried.source);
    }
}
