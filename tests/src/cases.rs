//! Credentials files and images as they are, and as they are by mistake: made at random, but not of random bytes.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD};
use fastrand::Rng;

use crate::oracle::Case;

const HOSTS: [&str; 14] = [
    "quay.io",
    "reg.example.com",
    "docker.io",
    "index.docker.io",
    "registry-1.docker.io",
    "localhost",
    "localhost:5000",
    "10.0.0.1:5000",
    "[::1]:5000",
    "[::1]",
    "Quay.io",
    "a.b.c.example.com",
    "reg.example.com:443",
    "foo.azurecr.io",
];
const PATHS: [&str; 8] = [
    "",
    "/org",
    "/org/app",
    "/org-evil/app",
    "/library/nginx",
    "/a/b/c",
    "/org/",
    "/",
];
const GLOBS: [&str; 12] = [
    "*.io",
    "*.*",
    "*",
    "q*y.io",
    "*.example.com",
    "reg.*.com",
    "*.azurecr.io",
    "q[tu]ay.io",
    "*:5000",
    "reg.example.com:*",
    "*a*.io",
    "[::*]",
];

/// What a case has, by name, and how often it occurred.
pub type Kinds = BTreeMap<&'static str, u64>;

/// Makes cases; the same seed makes the same ones.
pub struct Cases {
    random: Rng,
    /// How often each kind occurred so far.
    pub kinds: Kinds,
}

impl Cases {
    pub fn new(seed: u64) -> Self {
        Self {
            random: Rng::with_seed(seed),
            kinds: Kinds::new(),
        }
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random.usize(..from.len())]
    }

    fn one_in(&mut self, number: u32) -> bool {
        self.random.u32(..number) == 0
    }

    fn is(&mut self, kind: &'static str) {
        *self.kinds.entry(kind).or_default() += 1;
    }

    pub fn next_case(&mut self) -> Case {
        let entries = self.random.usize(..6);
        let mut keys: Vec<String> = Vec::new();
        let mut members: Vec<String> = Vec::new();
        for _ in 0..entries {
            let key = if !keys.is_empty() && self.one_in(12) {
                self.is("key again");
                self.pick(&keys.iter().map(String::as_str).collect::<Vec<_>>())
                    .to_owned()
            } else {
                self.key()
            };
            let value = self.entry();
            members.push(format!("{}:{value}", self.quoted(&key)));
            keys.push(key);
        }
        let config = self.file(&members);
        let images = (0..3).map(|_| self.image(&keys)).collect();
        Case { config, images }
    }

    fn key(&mut self) -> String {
        let mut key = if self.one_in(6) {
            self.is("key: glob");
            self.pick(&GLOBS).to_owned()
        } else {
            self.pick(&HOSTS).to_owned()
        };
        if self.one_in(3) {
            self.is("key: path");
            key += self.pick(&PATHS);
        }
        match self.random.u32(..40) {
            0..=5 => {
                self.is("key: scheme");
                let scheme = self.pick(&[
                    "https://",
                    "http://",
                    "https://",
                    "HTTPS://",
                    "docker://",
                    "https:/",
                    "http://https://",
                ]);
                key = format!("{scheme}{key}");
            }
            6..=8 => {
                self.is("key: API path");
                key += self.pick(&["/v1/", "/v2/", "/v1", "/v2", "/v1//org", "/v2/org"]);
            }
            9 => {
                self.is("key: user");
                key = format!(
                    "{}@{key}",
                    self.pick(&["user", "us er", "u:p", "u%40", "u%zz", "é", ""])
                );
            }
            10 => {
                self.is("key: query or fragment");
                key += self.pick(&["?", "?x", "#", "#x", "#%", "?a#b", "/org?x#y", "#%zz"]);
            }
            11 => {
                self.is("key: percent");
                key += self.pick(&[
                    "%20",
                    "/%6frg",
                    "/org%2Fapp",
                    "%zz",
                    "/%",
                    "%25",
                    "/%ff",
                    "%c3%a9",
                    "/%3F",
                    "/a%23b",
                ]);
            }
            12 => {
                self.is("key: space or control");
                let place = self.random.usize(..=key.len());
                let odd = self.pick(&[" ", "\t", "\n", "\u{7f}", "\u{0}", "\u{a0}"]);
                key.insert_str(place, odd);
            }
            13 => {
                self.is("key: port");
                key += self.pick(&[
                    ":443",
                    ":80",
                    ":",
                    ":abc",
                    ":5000:6000",
                    ":*",
                    ":0443",
                    ":99999",
                ]);
            }
            14 => {
                self.is("key: tag or digest");
                key += self.pick(&["/org/app:1.0", "/app@sha256:abc", "/org:latest"]);
            }
            15 => {
                self.is("key: IPv6");
                key = self
                    .pick(&[
                        "[::1]",
                        "[fe80::1%25en0]",
                        "[::1%25]",
                        "[::g]",
                        "[1.2.3.4]",
                        "[::1",
                        "::1",
                        "[::1]x",
                        "a[::1]",
                        "[fe80::1%25a*b]:5000",
                        "[::ffff:1.2.3.4]:5000",
                    ])
                    .to_owned();
            }
            16 => {
                self.is("key: empty or odd");
                key = self
                    .pick(&[
                        "",
                        " ",
                        "/",
                        "//",
                        ".",
                        "..",
                        "é.io",
                        "*.é",
                        "-",
                        "\u{fffd}",
                        "quay.io//org",
                        "https://",
                        "?",
                        "#",
                    ])
                    .to_owned();
            }
            _ => {}
        }
        key
    }

    fn pair(&mut self) -> Vec<u8> {
        let user: &[u8] = self.pick(&[
            &b"user"[..],
            b"user",
            b"u",
            b"",
            b"\xff\xfe",
            b"us er",
            b"00000000-0000-0000-0000-000000000000",
        ]);
        let number = self.random.u16(..).to_string();
        let password: &[u8] = self.pick(&[
            number.as_bytes(),
            number.as_bytes(),
            b"",
            b"p:a:b",
            b"\x00p\x00",
            b"\xc3\x28",
            b"\x00",
        ]);
        [user, b":", password].concat()
    }

    /// The text of `auth`.
    fn auth(&mut self) -> String {
        let pair = self.pair();
        let good = BASE64_STANDARD.encode(&pair);
        match self.random.u32(..24) {
            0 | 1 => {
                self.is("auth: unpadded");
                BASE64_STANDARD_NO_PAD.encode(&pair)
            }
            2 => {
                self.is("auth: line breaks");
                let place = self.random.usize(..=good.len());
                let (start, end) = good.split_at(place);
                format!("{start}{}{end}", self.pick(&["\n", "\r\n", "\r"]))
            }
            3 => {
                self.is("auth: damaged");
                let place = self.random.usize(..=good.len());
                let (start, end) = good.split_at(place);
                format!(
                    "{start}{}{end}",
                    self.pick(&[" ", "_", "-", "=", "!", "\t", "\u{2003}", "é", "A"])
                )
            }
            4 => {
                self.is("auth: around");
                let around = self.pick(&[" ", "\n", "=", "==", "\t", "\u{85}", "A", "\u{a0}"]);
                if self.random.bool() {
                    format!("{around}{good}")
                } else {
                    format!("{good}{around}")
                }
            }
            5 => {
                self.is("auth: dirty bits");
                good.replace("A=", "B=").replace("Q==", "R==")
            }
            6 => {
                self.is("auth: no colon");
                self.pick(&["dXNlcg==", "cGFudHM=", "pants", "cGFudHM", "AA=="])
                    .to_owned()
            }
            7 => {
                self.is("auth: empty");
                String::new()
            }
            _ => good,
        }
    }

    /// An entry's value.
    fn entry(&mut self) -> String {
        if self.one_in(30) {
            self.is("entry: no object");
            return self
                .pick(&["null", "null", "1", "\"x\"", "[]", "true"])
                .to_owned();
        }
        let mut fields: Vec<String> = Vec::new();
        let auth = self.auth();
        if !self.one_in(8) {
            let name = if self.one_in(10) {
                self.is("field: case");
                self.pick(&["Auth", "AUTH", "aUth"])
            } else {
                "auth"
            };
            fields.push(format!("\"{name}\":{}", self.quoted(&auth)));
        }
        if self.one_in(5) {
            self.is("field: username");
            let name = self.pick(&["username", "Username", "u\u{17f}ername", "USERNAME"]);
            fields.push(format!(
                "\"{name}\":{}",
                self.pick(&["\"robot\"", "null", "\"\"", "\"r\\u00f6b\"", "1"])
            ));
        }
        if self.one_in(5) {
            self.is("field: password");
            let name = self.pick(&["password", "Password", "pa\u{17f}sword"]);
            fields.push(format!(
                "\"{name}\":{}",
                self.pick(&["\"secret\"", "null", "\"\\ud800\"", "\"\\ud83d\\ude00\""])
            ));
        }
        if self.one_in(8) {
            self.is("field: identitytoken");
            fields.push(format!(
                "\"{}\":{}",
                self.pick(&["identitytoken", "IdentityToken"]),
                self.pick(&["\"t\"", "\"\"", "null", "1"])
            ));
        }
        if self.one_in(10) {
            self.is("field: again");
            let second = self.auth();
            fields.push(format!(
                "\"{}\":{}",
                self.pick(&["auth", "Auth"]),
                self.quoted(&second)
            ));
        }
        if self.one_in(15) {
            self.is("field: wrong type");
            fields.push(format!(
                "\"{}\":{}",
                self.pick(&["auth", "email", "username", "password", "Email"]),
                self.pick(&["1", "false", "[]", "{}", "1e999"])
            ));
        }
        if self.one_in(6) {
            self.is("field: unknown");
            fields.push(
                self.pick(&[
                    "\"x\":[1,{\"y\":null}]",
                    "\"email\":\"e@x\"",
                    "\"registrytoken\":\"t\"",
                    "\"auths\":{}",
                    "\"x\":1e400",
                    "\"\":\"\"",
                ])
                .to_owned(),
            );
        }
        self.random.shuffle(&mut fields);
        format!("{{{}}}", fields.join(","))
    }

    /// The text as JSON, now and then escaped where it need not be.
    fn quoted(&mut self, text: &str) -> String {
        if self.one_in(20) {
            self.is("string: escapes");
            let units: String = text
                .encode_utf16()
                .map(|unit| format!("\\u{unit:04x}"))
                .collect();
            return format!("\"{units}\"");
        }
        serde_json::Value::String(text.to_owned()).to_string()
    }

    fn file(&mut self, members: &[String]) -> Vec<u8> {
        let space = if self.one_in(4) { " \n\t" } else { "" };
        let auths = format!("{{{space}{}{space}}}", members.join(","));
        let mut tops = Vec::new();
        let name = if self.one_in(15) {
            self.is("file: auths in another case");
            self.pick(&["AUTHS", "Auths", "auth\u{17f}", "authS"])
        } else {
            "auths"
        };
        tops.push(format!("\"{name}\":{space}{auths}"));
        if self.one_in(20) {
            self.is("file: auths again");
            let more = self.entry();
            let key = self.key();
            let again = format!("{{{}:{more}}}", self.quoted(&key));
            let value = self
                .pick(&["null", "{}", again.as_str(), again.as_str(), "[]", "1"])
                .to_owned();
            tops.push(format!("\"auths\":{value}"));
        }
        if self.one_in(15) {
            self.is("file: HttpHeaders");
            tops.push(format!(
                "\"{}\":{}",
                self.pick(&["HttpHeaders", "httpheaders"]),
                self.pick(&[
                    "{}",
                    "null",
                    "{\"a\":\"b\"}",
                    "{\"a\":null}",
                    "{\"a\":1}",
                    "[]",
                    "1"
                ])
            ));
        }
        if self.one_in(15) {
            self.is("file: credHelpers");
            tops.push(format!(
                "\"{}\":{}",
                self.pick(&["credHelpers", "credhelpers"]),
                self.pick(&[
                    "{}",
                    "null",
                    "{\"quay.io\":\"x\"}",
                    "{\"docker.io\":\"y\"}",
                    "{\"quay.io\":null}",
                    "{\"quay.io\":1}",
                    "[]"
                ])
            ));
        }
        if self.one_in(20) {
            self.is("file: other members");
            tops.push(
                self.pick(&["\"credsStore\":\"x\"", "\"x\":[[[[]]]]", "\"\":{}"])
                    .to_owned(),
            );
        }
        self.random.shuffle(&mut tops);
        let mut bytes = format!("{space}{{{}}}{space}", tops.join(",")).into_bytes();
        match self.random.u32(..60) {
            0 => {
                self.is("file: cut off");
                bytes.truncate(self.random.usize(..=bytes.len()));
            }
            1 => {
                self.is("file: a byte changed");
                let place = self.random.usize(..bytes.len());
                bytes[place] = self.random.u8(..);
            }
            2 => {
                self.is("file: more behind it");
                bytes.extend_from_slice(
                    self.pick(&["x", "{}", ",", "\u{feff}", "\u{0}"]).as_bytes(),
                );
            }
            3 => {
                self.is("file: byte order mark");
                bytes.splice(0..0, *b"\xef\xbb\xbf");
            }
            4 => {
                self.is("file: no object");
                bytes = self
                    .pick(&[
                        "null",
                        "{}",
                        "[]",
                        "1",
                        "\"x\"",
                        "",
                        "  ",
                        "{\"auths\":null}",
                        "true",
                    ])
                    .as_bytes()
                    .to_vec();
            }
            5 => {
                self.is("file: deep");
                let depth = self.pick(&[100_usize, 9_997, 9_998, 9_999, 10_000]);
                bytes = format!(
                    "{{\"auths\":{auths},\"x\":{}{}}}",
                    "[".repeat(depth),
                    "]".repeat(depth)
                )
                .into_bytes();
            }
            _ => {}
        }
        bytes
    }

    /// Mostly an image that one of the keys is for.
    fn image(&mut self, keys: &[String]) -> String {
        let host = if !keys.is_empty() && self.random.bool() {
            self.is("image: of a key");
            let key = &keys[self.random.usize(..keys.len())];
            key.trim_start_matches("https://")
                .trim_start_matches("http://")
                .trim_end_matches('/')
                .replace('*', "x")
        } else {
            self.pick(&HOSTS).to_owned()
        };
        let mut image = match self.random.u32(..12) {
            0 => {
                self.is("image: short");
                self.pick(&[
                    "nginx",
                    "user/repo",
                    "library/nginx",
                    "localhost/a",
                    "docker.io/nginx",
                    "index.docker.io/a/b",
                ])
                .to_owned()
            }
            1 => {
                self.is("image: odd");
                self.pick(&[
                    "",
                    "A",
                    "quay.io/A",
                    "quay.io/a//b",
                    "quay.io/a__b/c--d",
                    "quay.io/a___b",
                    "quay.io/a_.b",
                    " nginx",
                    "https://quay.io/a",
                    "quay.io/",
                    "quay.io:5000",
                    "é/a",
                    "a:b:c",
                    "x@y",
                    "::1/a",
                    "[::1]/a",
                ])
                .to_owned()
            }
            _ => {
                host + self.pick(&[
                    "/org/app",
                    "/org-evil/app",
                    "/app",
                    "/library/nginx",
                    "/a/b/c",
                    "",
                    "/org",
                ])
            }
        };
        if self.one_in(4) {
            self.is("image: tag or digest");
            image += self.pick(&[
                ":1.0",
                ":latest",
                ":",
                ":-x",
                "@sha256:abc",
                ":1@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                "@sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
                "@md5:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                ":a_b.c-d",
            ]);
        }
        image
    }
}
