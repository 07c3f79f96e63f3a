//! kubectl's output formats of `-o`, compared with kubectl itself. Needs no cluster.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use globalps_testkit::kubernetes;
use globalps_testkit::product::{Product, Ran, run};
use serde_json::{Value, json};
use tempfile::TempDir;

/// kubectl's output for an object, without a cluster.
fn kubectl(object: &Value, format: &str) -> Ran {
    let mut kubectl = Command::new(kubernetes::bin_dir().join("kubectl"));
    kubectl
        .args(["patch", "--local", "--type=merge", "-p", "{}", "-f", "-"])
        .args(["-o", format])
        .env("KUBECONFIG", "/dev/null");
    run(&mut kubectl, &object.to_string()).unwrap()
}

/// A file of the plugin's own tests.
fn cases(name: &str) -> String {
    let directory = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../kubectl-globalps/src/format/cases"
    );
    fs::read_to_string(format!("{directory}/{name}")).unwrap()
}

/// A credentials file, and the directory that keeps it.
fn credentials() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.json");
    let auths = json!({"auths": {"quay.io": {"auth": "dTpw"}}});
    fs::write(&file, auths.to_string()).unwrap();
    (directory, file)
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn the_cases_of_the_plugin_are_what_kubectl_prints() {
    let document = kubectl(&read(&cases("kyaml.json")), "kyaml");
    assert_eq!(document.stdout, cases("kyaml.yaml"), "{document:?}");

    let templates = read(&cases("jsonpath.json"));
    for case in templates["cases"].as_array().unwrap() {
        let template = case[0].as_str().unwrap();
        let ran = kubectl(&templates["value"], &format!("jsonpath={template}"));
        let printed = (ran.code == Some(0)).then_some(ran.stdout.as_str());
        // kubectl iterates over an object's fields in random order.
        let sorted = |text: Option<&str>| {
            let mut words: Vec<String> = text?.split(' ').map(str::to_owned).collect();
            if template.contains('*') || template.contains("..") {
                words.sort();
            }
            Some(words)
        };
        assert_eq!(sorted(printed), sorted(case[1].as_str()), "{template}");
    }
}

#[test]
fn an_object_is_printed_as_by_kubectl() {
    let (_directory, file) = credentials();
    let add = |format: &str| {
        let mut plugin = Command::new(Product::plugin_path());
        plugin
            .args(["add", "--skip-check", "--dry-run=client", "-o", format])
            .arg("--from-file")
            .arg(&file);
        let ran = run(&mut plugin, "").unwrap();
        assert_eq!(ran.code, Some(0), "{format}: {ran:?}");
        ran.stdout
    };
    let object = read(&add("json"));
    for format in [
        "kyaml",
        "jsonpath={.metadata.name} {.data}",
        r#"jsonpath={.data['\.dockerconfigjson']}{"\n"}"#,
        "jsonpath-as-json={.metadata.name}{.kind}",
        r#"go-template={{index .data ".dockerconfigjson" | base64decode}}{{"\n"}}"#,
        "go-template={{range $key, $value := .}}{{$key}}: {{$.kind}} {{end}}",
    ] {
        assert_eq!(add(format), kubectl(&object, format).stdout, "{format}");
    }
}

#[test]
fn the_kubectl_that_started_the_plugin_executes_go_templates() {
    let (_directory, file) = credentials();
    let own = kubernetes::bin_dir().join("kubectl");
    let print = |template: &str, path: &str, own: &str| {
        let mut plugin = Command::new(Product::plugin_path());
        plugin
            .arg("validate")
            .arg(&file)
            .args(["-o", &format!("go-template={template}")])
            .env("PATH", path)
            .env("KUBECTL_PATH", own)
            .env("KUBECONFIG", "/none")
            .env("KUBERC", "/none");
        run(&mut plugin, "").unwrap()
    };
    let own = own.to_str().unwrap();
    let bin = kubernetes::bin_dir();
    let bin = bin.to_str().unwrap();
    for (path, own) in [("/none", own), (bin, "")] {
        let ran = print("{{range .registries}}{{.}} {{$.valid}}{{end}}", path, own);
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (Some(0), "quay.io true"),
            "{ran:?}"
        );
    }
    for (template, path, own, expected) in [
        (
            "{{index .registries 7}}",
            bin,
            "",
            "error: kubectl could not execute the Go template: <index .registries 7>: error calling index: index out of range: 7\n",
        ),
        (
            "{{foo}}",
            bin,
            "",
            "error: kubectl could not execute the Go template: function \"foo\" not defined\n",
        ),
        (
            "{{.}}",
            "/none",
            "",
            "error: `kubectl` executes Go templates, and could not be run: No such file or directory (os error 2)\n",
        ),
    ] {
        let ran = print(template, path, own);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.starts_with(expected), "{ran:?}");
    }
}
