//! The state of the API server, and how requests read and change it.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::answers::{Answer, conflict, failure, forbidden, not_found, success, table, version};
use crate::faults::Fault;
use crate::objects::{Objects, children, is_child, is_meant, merge, name, take_back};
use crate::request::{Request, Right};

/// Decides about a request before the API server does, and may change it, or objects as another client; `None`: the API
/// server responds.
pub type Rule = Box<dyn FnMut(&mut Request, &mut Objects) -> Option<Answer> + Send>;

pub(crate) enum Reply {
    Answer(Answer),
    Watch,
    Silence,
}

/// The state of the API server.
#[derive(Default)]
pub struct State {
    pub objects: Objects,
    /// Version of the last write.
    pub version: u64,
    /// Last version of each deleted object, and the version of its deletion.
    deleted: BTreeMap<String, (u64, Value)>,
    /// What server-side apply wrote last, by path.
    applied: Objects,
    /// Fields by path that another client sets again at each write without them.
    pub insisted: Objects,
    /// Fields by path that responses have instead of those of the object.
    pub said: Objects,
    /// A controller's reaction when a watch starts.
    pub(crate) controller: Option<fn(&mut Objects)>,
    /// `None`: everything is allowed.
    pub(crate) rights: Option<Vec<Right>>,
    pub(crate) rule: Option<Rule>,
    /// By name of a change, or by verb and path including paths below it: the fault and the number of times.
    pub(crate) faults: Vec<(String, Fault, usize)>,
    /// How far its clock is behind; `None`: its responses have no `Date`.
    pub(crate) is_behind: Option<SignedDuration>,
    /// Verb and path of each request.
    pub requests: Vec<String>,
    /// The path of each successful write, and `DELETE ` with the path of each deletion, in order.
    pub changes: Vec<String>,
    pub(crate) is_unrecorded: bool,
    /// Sends at each change. A watch ends with its sender.
    pub(crate) news: watch::Sender<()>,
}

impl State {
    /// Another client writes the object. Sets its names and its version.
    pub fn store(&mut self, path: &str, mut object: Value) -> Value {
        name(path, &mut object);
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.deleted.remove(path);
        self.objects.insert(path.to_owned(), object.clone());
        self.news.send_replace(());
        object
    }

    /// Another client removes the object.
    pub fn remove(&mut self, path: &str) -> Option<Value> {
        let object = self.objects.remove(path)?;
        self.version += 1;
        self.applied.remove(path);
        let deleted = (self.version, object.clone());
        self.deleted.insert(path.to_owned(), deleted);
        self.news.send_replace(());
        Some(object)
    }

    /// The object as it is, with the labels, annotations and content as those of the last apply.
    pub(crate) fn put(&mut self, path: &str, object: Value) {
        let mut applied = object.clone();
        if let Some(fields) = applied.as_object_mut() {
            fields.remove("status");
        }
        if let Some(fields) = applied["metadata"].as_object_mut() {
            fields.retain(|it, _| ["labels", "annotations", "ownerReferences"].contains(&&**it));
        }
        self.applied.insert(path.to_owned(), applied);
        self.objects.insert(path.to_owned(), object);
    }

    /// Ends all watches.
    pub fn end_watches(&mut self) {
        self.news = watch::Sender::default();
    }

    pub(crate) fn reply(&mut self, request: &mut Request) -> Reply {
        let right = request.right();
        let mut title = String::new();
        if let Some(right) = &right {
            let table = if request.is_table() {
                " as a table"
            } else {
                ""
            };
            title = format!("{} {}{table}", right.verb, request.path);
            if !self.is_unrecorded {
                self.requests.push(title.clone());
            }
        }
        match self.fault(&title, request.change().as_deref()) {
            None => {}
            Some(Fault::Silence) => return Reply::Silence,
            Some(Fault::Code(code)) => return Reply::Answer(failure(code, "", "broken")),
            Some(Fault::Answer(code, message)) => {
                let reason = if code == 404 { "NotFound" } else { "" };
                return Reply::Answer(failure(code, reason, message));
            }
        }
        if let Some(answer) = self
            .rule
            .as_mut()
            .and_then(|rule| rule(request, &mut self.objects))
        {
            return Reply::Answer(answer);
        }
        let Some(right) = right else {
            return Reply::Answer((200, version()));
        };
        if !request.is_review() && !self.is_allowed(&right) {
            return Reply::Answer(forbidden(&right));
        }
        if request.is_watch() {
            self.act();
            return Reply::Watch;
        }
        let (code, mut object) = self.answer(request, &right);
        if code < 300 {
            self.say(&request.object(), &mut object);
        }
        Reply::Answer((code, object))
    }

    fn say(&self, path: &str, object: &mut Value) {
        if let Some(said) = self.said.get(path) {
            merge(object, said);
        }
    }

    fn fault(&mut self, title: &str, change: Option<&str>) -> Option<Fault> {
        let mut faults = self.faults.iter_mut();
        let (_, fault, left) = faults.find(|(of, _, left)| {
            let rest = title.strip_prefix(&**of);
            let begins = rest.is_some_and(|it| it.is_empty() || it.starts_with(['/', ' ']));
            *left > 0 && (Some(&**of) == change || begins)
        })?;
        *left -= 1;
        Some(*fault)
    }

    fn is_allowed(&self, asked: &Right) -> bool {
        let rights = self.rights.as_ref();
        rights.is_none_or(|rights| rights.iter().any(|right| right.covers(asked)))
    }

    fn act(&mut self) {
        let Some(act) = self.controller.take() else {
            return;
        };
        let before = self.objects.clone();
        act(&mut self.objects);
        let after = std::mem::replace(&mut self.objects, before.clone());
        for path in before.keys().filter(|path| !after.contains_key(*path)) {
            self.remove(path);
        }
        for (path, object) in after {
            if before.get(&path) != Some(&object) {
                self.store(&path, object);
            }
        }
    }

    fn answer(&mut self, request: &Request, right: &Right) -> Answer {
        let path = &request.object();
        let body = &request.body;
        let known = self.objects.get(path).cloned();
        match (right.verb.as_str(), known) {
            ("create", _) if request.is_review() => {
                let mut review = body.clone();
                review["status"] = json!({"allowed": self.is_allowed(&request.reviewed())});
                (201, review)
            }
            ("create", _) if right.resource == "pods/eviction" => {
                self.evict(request.path.trim_end_matches("/eviction"), body)
            }
            // Nothing reads them again.
            ("create", _) if right.resource.starts_with("events") => (201, body.clone()),
            ("create", Some(_)) => failure(409, "AlreadyExists", "it already exists"),
            ("create", None) if request.is_dry_run() => (201, body.clone()),
            ("create", None) => (201, self.write(request, body.clone(), true)),
            ("list", _) => self.list(request),
            ("patch", None) if request.is_apply() => self.change(request, Value::Null),
            (_, None) => not_found(path),
            ("patch" | "update", Some(known)) => self.change(request, known),
            ("delete", Some(object)) => self.delete(request, object),
            (_, Some(object)) => (200, object),
        }
    }

    fn list(&self, request: &Request) -> Answer {
        let path = request.path.as_str();
        let version = json!({"resourceVersion": self.version.to_string()});
        if request.is_table() {
            let is_all = request.parameter("labelSelector").is_empty();
            let nodes = children(&self.objects, path).filter(|_| is_all);
            let nodes: Vec<&Value> = nodes.map(|(_, node)| node).collect();
            let mut table = table(&nodes, true);
            table["metadata"] = version;
            return (200, table);
        }
        let selected = request.selected();
        let number = |name: &str| request.parameter(name).parse().ok();
        let (from, limit) = (number("continue"), number("limit"));
        let (from, limit) = (from.unwrap_or(0), limit.unwrap_or(usize::MAX));
        let items: Vec<(&String, &Value)> = children(&self.objects, path)
            .filter(|(_, object)| selected.is_empty() || object["metadata"]["name"] == selected)
            .collect();
        let shown = |(path, object): &(&String, &Value)| {
            let mut object = (*object).clone();
            self.say(path, &mut object);
            object
        };
        let page: Vec<Value> = items.iter().skip(from).take(limit).map(shown).collect();
        let end = from + page.len();
        let next = (end < items.len()).then(|| end.to_string());
        // Like the real one, if it has no metadata to show.
        let items = (!page.is_empty() || !request.is_metadata()).then_some(page);
        let mut list =
            json!({"apiVersion": "v1", "kind": "List", "items": items, "metadata": version});
        list["metadata"]["continue"] = next.unwrap_or_default().into();
        (200, list)
    }

    /// A patch or an update.
    fn change(&mut self, request: &Request, known: Value) -> Answer {
        let body = &request.body;
        if !is_meant(&body["metadata"], &known) {
            return conflict();
        }
        let path = request.object();
        let mut object = known.clone();
        let is_apply = request.is_apply();
        if let Ok(steps) = serde_json::from_value::<json_patch::Patch>(body.clone()) {
            if json_patch::patch(&mut object, &steps).is_err() {
                return failure(422, "Invalid", "the server rejected our request");
            }
        } else if request.right().is_some_and(|right| right.verb == "update") {
            object = body.clone();
        } else {
            if let Some(last) = self.applied.get(&path).filter(|_| is_apply) {
                take_back(&mut object, last, body);
            }
            merge(&mut object, body);
        }
        if known["immutable"] == true && object["data"] != known["data"] {
            let message = "data: Forbidden: field is immutable when `immutable` is set";
            return failure(422, "Invalid", message);
        }
        if request.is_dry_run() {
            return (200, object);
        }
        if is_apply {
            self.applied.insert(path, body.clone());
        }
        (200, self.write(request, object, is_apply))
    }

    /// `is_change`: even if nothing changes.
    fn write(&mut self, request: &Request, mut object: Value, is_change: bool) -> Value {
        let path = &request.object();
        if let Some(others) = self.insisted.get(path) {
            let mut merged = others.clone();
            merge(&mut merged, &object);
            object = merged;
        }
        let known = self.objects.get(path).cloned().unwrap_or_default();
        name(path, &mut object);
        let metadata = &known["metadata"];
        match metadata.get("resourceVersion") {
            Some(version) => object["metadata"]["resourceVersion"] = version.clone(),
            None => drop(
                object["metadata"]
                    .as_object_mut()
                    .unwrap()
                    .remove("resourceVersion"),
            ),
        }
        let uid = || json!(format!("u{}", self.version + 1));
        object["metadata"]["uid"] = Some(metadata["uid"].clone())
            .filter(|it| !it.is_null())
            .unwrap_or_else(uid);
        let generation = metadata["generation"].as_i64();
        // An object of a test that has none gets none.
        if object["spec"] != known["spec"] && (generation.is_some() || known.is_null()) {
            object["metadata"]["generation"] = json!(generation.unwrap_or_default() + 1);
        }
        let is_news = object != known;
        if (is_news || is_change) && !self.is_unrecorded {
            self.changes.extend(request.change());
        }
        if is_news {
            object = self.store(path, object);
        }
        object
    }

    /// A finalizer keeps the object, but not that of the garbage collector, by which an earlier deletion waits for the dependents.
    fn delete(&mut self, request: &Request, mut object: Value) -> Answer {
        if !is_meant(&request.body["preconditions"], &object) {
            return conflict();
        }
        if request.is_dry_run() {
            return success(200);
        }
        if let Some(finalizers) = object["metadata"]["finalizers"].as_array_mut() {
            finalizers.retain(|it| *it != "foregroundDeletion");
            if !finalizers.is_empty() {
                object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                return (200, self.store(&request.path, object));
            }
        }
        self.remove(&request.path);
        if !self.is_unrecorded {
            self.changes.extend(request.change());
        }
        success(200)
    }

    /// A pod with the label `budget: "0"` is one that its budget keeps.
    fn evict(&mut self, path: &str, eviction: &Value) -> Answer {
        let Some(pod) = self.objects.get(path) else {
            return not_found(path);
        };
        let wanted = &eviction["deleteOptions"]["preconditions"];
        if pod["metadata"]["labels"]["budget"] == "0" {
            let message = "Cannot evict pod as it would violate the pod's disruption budget.";
            return failure(429, "TooManyRequests", message);
        }
        if wanted["resourceVersion"] != pod["metadata"]["resourceVersion"] {
            return conflict();
        }
        self.remove(path);
        success(201)
    }

    /// The changes after the version, and the version up to which they are complete.
    pub(crate) fn events(&self, request: &Request, since: u64) -> (Vec<Value>, u64) {
        let path = request.path.as_str();
        let version = |object: &Value| {
            let version = object["metadata"]["resourceVersion"].as_str();
            version.and_then(|it| it.parse().ok()).unwrap_or(0)
        };
        let is_selected = |object: &Value| {
            let selected = request.selected();
            selected.is_empty() || object["metadata"]["name"] == selected
        };
        let gone = self.deleted.iter().filter(|(of, _)| is_child(of, path));
        let gone = gone.map(|(path, (at, object))| ("DELETED", *at, path, object));
        let there = children(&self.objects, path);
        let there = there.map(|(path, object)| ("MODIFIED", version(object), path, object));
        let all = gone.chain(there);
        let new = all.filter(|(_, at, _, object)| *at > since && is_selected(object));
        let mut new: Vec<(&str, u64, &String, &Value)> = new.collect();
        new.sort_by_key(|(_, at, ..)| *at);
        // Tests store objects with versions of their own.
        let last = new.last().map(|(_, at, ..)| *at);
        let event = |(number, (kind, at, path, object)): (usize, (&str, u64, &String, &Value))| {
            let mut object = object.clone();
            self.say(path, &mut object);
            if request.is_table() {
                object = table(&[&object], number == 0);
            }
            object["metadata"]["resourceVersion"] = at.to_string().into();
            json!({"type": kind, "object": object})
        };
        let events = new.into_iter().enumerate().map(event).collect();
        (events, last.unwrap_or_default().max(self.version))
    }
}
