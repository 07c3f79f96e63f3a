//! `why`: why a pod can't pull its image.

use globalps_dockerconfig::{Credential, attempts};
use globalps_registry::{Checker, ImageName, Pull, RegistryError};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::Api;

use super::explain::{PullerSeen, Shared, asked, node_secret, there};
use super::history::slots;
use super::live_check::{ask_each, trust};
use super::why_facts::{account, adding, asked_with, events, has_image, shared};
use crate::cli::{Asking, Connection, Named, PodName, Why};
use crate::cluster::{Cluster, of_credentials};
use crate::error::{Exit, Result, allowed};
use crate::registry::Trust;
use crate::secret::history::{StoredRevision, sorted};
use crate::secret::pull::{Answer, Asked};
use crate::secret::tried::{Origin, Tried};
use crate::terminal::printer::{Printer, Stream, terminal_width};
use crate::view::why::{
    Adding, CommandTarget, Evidence, Explained, Failing, Lag, PodAnswer, PodSeen, Said, Tested,
    Use, failing, not_an_image,
};

pub(super) async fn run(
    args: &Why,
    pod: &PodName,
    flags: &Connection,
    printer: &Printer,
) -> Result<Exit> {
    let trust = (!args.no_ask).then(|| trust(&args.asking)).transpose()?;
    let mut cluster = Cluster::connect(flags, printer)?;
    let named = pod.named(&cluster.own_namespace);
    cluster.namespace = of_credentials(&cluster).await?;
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &named.namespace);
    let pod = there(&cluster, &named, "Pod", api.get_opt(&named.name)).await?;
    let with = With {
        asking: &args.asking,
        trust,
        context: flags.context.as_deref(),
    };
    let answer = Box::pin(explained(&cluster, &named, pod, with)).await?;
    printer.print(&args.output, ("the answer", &answer), [], || {
        printer.data(&answer.text(terminal_width(Stream::Out).map(usize::from)));
    })?;
    Ok(match answer.cause {
        Some(_) => Exit::No,
        None => Exit::Done,
    })
}

/// The user's flags that affect the answer.
struct With<'a> {
    asking: &'a Asking,
    /// `None`: no registry is contacted.
    trust: Option<Trust>,
    /// Context of the kubeconfig, for the commands in the answer.
    context: Option<&'a str>,
}

async fn explained(
    cluster: &Cluster<'_>,
    named: &Named,
    pod: Pod,
    with: With<'_>,
) -> Result<PodAnswer> {
    let seen = PodSeen::of(&pod);
    let namespace = Some(named.namespace.as_str());
    let field = format!("involvedObject.name={}", named.name);
    let events = events(cluster, namespace, &field).await?;
    let found = failing(&pod, &events);
    let place = CommandTarget {
        context: with.context,
        secrets: &cluster.namespace,
    };
    let mut answer = PodAnswer {
        pod: named.to_string(),
        node: seen.node.clone(),
        containers: Vec::new(),
        cause: None,
    };
    if found.is_empty() {
        answer.cause = not_an_image(&pod, &events).map(|cause| cause.at(&place));
        return Ok(answer);
    }
    let shared = shared(cluster).await?;
    let account = account(cluster, &seen).await?;
    let of = PullerSeen::Pod(named.clone(), Box::new(pod));
    let mut looked = Vec::new();
    for failing in found {
        looked.push(look(cluster, &shared, &of, (&seen, failing)).await?);
    }
    for tried in looked.iter_mut().flat_map(|looked| &mut looked.tries) {
        name_account(tried, &seen, account.as_ref());
    }
    let mut questions: Vec<PullQuestion> = Vec::new();
    for question in looked.iter().flat_map(Looked::questions) {
        if !questions.contains(&question) {
            questions.push(question);
        }
    }
    let answers = match with.trust {
        Some(trust) => ask(&questions, trust, with.asking, cluster.printer()).await,
        None => Vec::new(),
    };
    let answers: Vec<_> = questions.into_iter().zip(answers).collect();
    let known = PodFindings {
        earlier: earlier(cluster, &shared, looked.iter(), &answers).await?,
        adding: adding(cluster, &shared).await?,
        answers,
        asked_with: asked_with(with.asking),
    };
    let judge = |looked: &Looked| looked.explained(&seen, &place, &known);
    answer.containers = looked.iter().map(judge).collect();
    let mut causes = answer.containers.iter().map(|found| &found.cause);
    answer.cause = causes.next().cloned();
    Ok(answer)
}

/// A request to a registry: an image, with a credential or without.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct PullQuestion {
    pub image: ImageName,
    credential: Option<Credential>,
}

type Answers = [(PullQuestion, Result<Pull, RegistryError>)];

/// The facts for all containers together.
pub(super) struct PodFindings {
    pub answers: Vec<(PullQuestion, Result<Pull, RegistryError>)>,
    /// Earlier additional pull secrets, newest first.
    pub earlier: Vec<StoredRevision>,
    pub adding: Adding,
    /// See [`asked_with`].
    pub asked_with: String,
}

/// Only read if a credential of globalps is rejected; empty for a user who may not read them.
pub(super) async fn earlier<'a>(
    cluster: &Cluster<'_>,
    shared: &Shared,
    mut looked: impl Iterator<Item = &'a Looked>,
    answers: &Answers,
) -> Result<Vec<StoredRevision>> {
    let Some(gps) = shared
        .gps
        .as_ref()
        .filter(|_| looked.any(|it| it.is_rejected(answers)))
    else {
        return Ok(Vec::new());
    };
    let found = allowed(slots(cluster, gps.spec.history_limit).await)?;
    Ok(sorted(found.unwrap_or_default(), None))
}

pub(super) async fn ask(
    questions: &[PullQuestion],
    trust: Trust,
    flags: &Asking,
    printer: &Printer,
) -> Vec<Result<Pull, RegistryError>> {
    let pull = async |checker: &Checker, asked: &PullQuestion| {
        checker.pull(&asked.image, asked.credential.as_ref()).await
    };
    ask_each(questions, trust, flags, printer, pull).await
}

/// The cluster's state for a container's image.
pub(super) struct Looked {
    failing: Failing,
    /// `None` if the image name is invalid.
    image: Option<ImageName>,
    pub tries: Vec<Tried>,
    excluding: Option<(String, String)>,
    unreadable: Option<(String, Origin)>,
    lag: Option<Lag>,
    is_present: bool,
    notes: Vec<String>,
}

/// Lists the credentials for the container's image.
pub(super) async fn look(
    cluster: &Cluster<'_>,
    shared: &Shared,
    of: &PullerSeen,
    (seen, failing): (&PodSeen, Failing),
) -> Result<Looked> {
    let is_of_runtime = failing.used == Use::Sandbox;
    let asked = if is_of_runtime {
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
    let Ok(answer) = Answer::of(asked) else {
        return Ok(Looked::without_name(failing));
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
        lag,
        is_present,
    })
}

impl Looked {
    /// Judged only by the kubelet's message.
    pub(super) fn without_name(failing: Failing) -> Self {
        Self {
            failing,
            image: None,
            tries: Vec::new(),
            excluding: None,
            unreadable: None,
            lag: None,
            is_present: false,
            notes: Vec::new(),
        }
    }

    pub(super) fn questions(&self) -> Vec<PullQuestion> {
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

    pub(super) fn explained(
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
            lag: self.lag.as_ref(),
            is_present: self.is_present,
            adding: &known.adding,
            secrets: place.secrets,
            earlier: self.other_revision(&known.earlier),
            asked_with: &known.asked_with,
        };
        let cause = evidence.cause().at(place);
        let notes: Vec<String> = self.notes.iter().map(|note| place.text(note)).collect();
        Explained::of(&self.failing, &tries, anonymous.as_ref(), &notes, cause)
    }
}

/// The API server copies the Secrets of the service account into the pod.
fn name_account(tried: &mut Tried, pod: &PodSeen, account: Option<&ServiceAccount>) {
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
