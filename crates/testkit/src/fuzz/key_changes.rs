//! Changes that users make to keys by mistake, or because they expect an effect.

use super::draw::{Change, Draw};
use super::json::{INVALID_UTF8, SURROGATE};
use super::kind::Kind;

pub(super) const CHANGES: [Change; 42] = [
    (Kind::KeyHttps, |_, key| prefix(key, "https://")),
    (Kind::KeyHttps, |_, key| prefix(key, "https://")),
    (Kind::KeyHttp, |_, key| prefix(key, "http://")),
    (Kind::KeyOtherScheme, |draw, key| {
        let scheme = draw.word(
            "HTTPS:// Http:// docker:// oci: ftp:// // :// 1: https: http:/ https:/// \
             https://https:// http://https://",
        );
        prefix(key, scheme);
    }),
    (Kind::KeyApiPath, |draw, key| {
        let path = draw.pick(&["/v1/", "/v2/"]);
        key.push_str(path);
        if draw.one_in(2) {
            prefix(key, "https://");
        }
    }),
    (Kind::KeyApiPathBefore, |draw, key| {
        let path = draw.pick(&["/v1", "/v2"]);
        behind_host(key, path);
    }),
    (Kind::KeyAlmostApiPath, |draw, key| {
        let path = draw.pick(&[
            "/v1", "/v2", "/v3/", "/V2/", "//v1/", "/v1//", "/v1/v2/", "/v2/.", "/%76%31/", "/v1/?",
        ]);
        key.push_str(path);
    }),
    (Kind::KeyHubUrl, |draw, key| {
        *key = draw
            .word(
                "https://index.docker.io/v1/ https://index.docker.io/v1/ index.docker.io/v1/ \
             https://index.docker.io/v2/ https://registry-1.docker.io/v2/ https://docker.io \
             docker.io/library index.docker.io/library https://hub.docker.com \
             http://index.docker.io index.docker.io:443 https://index.docker.io//",
            )
            .to_owned();
    }),
    (Kind::KeyPort, |draw, key| {
        let port = draw.pick(&[":443", ":80", ":5000", ":8443"]);
        behind_host(key, port);
    }),
    (Kind::KeyBadPort, |draw, key| {
        let port = draw.pick(&[
            ":",
            ":abc",
            ":0443",
            ":99999",
            ":-1",
            ":5000:6000",
            ":5 0",
            ":+1",
            ":\u{662}",
            ":18446744073709551616",
            ":%31",
        ]);
        behind_host(key, port);
    }),
    (Kind::KeyPortGlob, |draw, key| {
        let port = draw.pick(&[":*", ":50*", ":[0-9]"]);
        behind_host(key, port);
    }),
    (Kind::KeyGlobLabel, |draw, key| {
        let label = label(draw, key);
        key.replace_range(label, "*");
    }),
    (Kind::KeyGlobPart, |draw, key| {
        let label = label(draw, key);
        let piece = draw.pick(&["*", "**", "*a*", "*."]);
        let mut text = key[label.clone()].to_owned();
        if draw.one_in(2) {
            let at = draw.place(&text);
            text.truncate(at);
        }
        draw.insert(&mut text, piece);
        key.replace_range(label, &text);
    }),
    (Kind::KeyGlobWhole, |draw, key| {
        let glob = draw.word("* *.* *.*.* *.io *.example.com ** *:5000 *.*:5000 */*");
        key.replace_range(..host_end(key), glob);
    }),
    (Kind::KeyGlobPath, |draw, key| {
        let piece = draw.pick(&["/*", "/*/app", "/org/*", "/o*", "/**"]);
        key.push_str(piece);
    }),
    (Kind::KeyQuestionMark, |draw, key| {
        let label = label(draw, key);
        let at = label.start + draw.below(label.len() + 1);
        if key.is_char_boundary(at) {
            key.insert(at, '?');
        }
    }),
    (Kind::KeyBrackets, |draw, key| {
        let label = label(draw, key);
        let piece = draw.pick(&[
            "[a-z]", "[qr]", "[^x]", "[!x]", "[]", "[", "]", "[a", "[a-]", "[-a]", "[\\]]", "[*]",
        ]);
        let mut text = key[label.clone()].to_owned();
        draw.insert(&mut text, piece);
        key.replace_range(label, &text);
    }),
    (Kind::KeyBackslash, |draw, key| {
        let piece = draw.pick(&["\\", "\\q", "\\*", "\\\\"]);
        draw.insert(key, piece);
    }),
    (Kind::KeyTrailingSlash, |_, key| key.push('/')),
    (Kind::KeySlashes, |draw, key| {
        let piece = draw.pick(&["//", "///", "/./", "/../", "/.", "/..", "//org"]);
        if draw.one_in(2) {
            behind_host(key, piece);
        } else {
            key.push_str(piece);
        }
    }),
    (Kind::KeyLeadingSlash, |draw, key| {
        let piece = draw.pick(&["/", "//", "./", "../"]);
        prefix(key, piece);
    }),
    (Kind::KeyDot, |draw, key| {
        let piece = draw.pick(&[".", "..", ".a"]);
        if draw.one_in(3) {
            prefix(key, ".");
        } else {
            behind_host(key, piece);
        }
    }),
    (Kind::KeyUpperCase, |draw, key| {
        if draw.one_in(2) {
            key.make_ascii_uppercase();
        } else {
            let at = draw.below(key.len() + 1);
            if let Some(piece) = key.get_mut(at..) {
                piece.make_ascii_uppercase();
            }
        }
    }),
    (Kind::KeyTag, |draw, key| {
        let tag = draw.pick(&[":1.0", ":latest", "/app:v1", ":1"]);
        key.push_str(tag);
    }),
    (Kind::KeyDigest, |draw, key| {
        let digest = draw.pick(&["@sha256", "@sha256:abc", "/app@sha256:0123"]);
        key.push_str(digest);
    }),
    (Kind::KeyUser, |draw, key| {
        let user = draw.pick(&[
            "user@",
            "user:password@",
            "@",
            ":@",
            "a@b@",
            "u%40v@",
            "u%zz@",
            "u v@",
            "\u{e9}@",
            "a/b@",
            "a:b:c@",
            "[u]@",
            "u;v=w@",
        ]);
        let at = key.find("://").map_or(0, |at| at + 3);
        key.insert_str(at, user);
    }),
    (Kind::KeyQuery, |draw, key| {
        let query = draw.pick(&["?", "?a=b", "?x/y", "?a?b", "?%zz", "? ", "/?", "?a#b"]);
        if draw.one_in(2) {
            behind_host(key, query);
        } else {
            key.push_str(query);
        }
    }),
    (Kind::KeyFragment, |draw, key| {
        let fragment = draw.pick(&[
            "#", "#a", "#/org", "#a?b", "#%zz", "#%41", "##", "/#", "# ", "#\u{e9}",
        ]);
        if draw.one_in(2) {
            behind_host(key, fragment);
        } else {
            key.push_str(fragment);
        }
    }),
    (Kind::KeySpace, |draw, key| {
        let space = draw.pick(&[" ", "  ", "\u{a0}", "\u{2003}", "\u{3000}", "+"]);
        match draw.below(3) {
            0 => prefix(key, space),
            1 => key.push_str(space),
            _ => draw.insert(key, space),
        }
    }),
    (Kind::KeyControl, |draw, key| {
        let control = draw.pick(&[
            "\0", "\t", "\n", "\r\n", "\u{1f}", "\u{7f}", "\u{85}", "\u{2028}", "\u{feff}",
            "\u{200b}",
        ]);
        match draw.below(3) {
            0 => prefix(key, control),
            1 => key.push_str(control),
            _ => draw.insert(key, control),
        }
    }),
    (Kind::KeyPercent, |draw, key| {
        let piece = draw.pick(&[
            "%20", "%2F", "%2f", "%41", "%6f", "%25", "%00", "%3A", "%3F", "%23", "%5B", "%2A",
            "%c3%a9", "%ff", "%40",
        ]);
        match draw.below(3) {
            0 => draw.insert(key, piece),
            1 => behind_host(key, piece),
            _ => {
                key.push('/');
                key.push_str(piece);
            }
        }
    }),
    (Kind::KeyPercentInstead, |draw, key| {
        // Escapes a byte of the key: for a reader that decodes it, the key stays the same.
        let at = draw.below(key.len() + 1);
        if let Some(byte) = key.get(at..=at).and_then(|text| text.bytes().next()) {
            let escape = if draw.one_in(2) {
                format!("%{byte:02x}")
            } else {
                format!("%{byte:02X}")
            };
            key.replace_range(at..=at, &escape);
        }
    }),
    (Kind::KeyBadPercent, |draw, key| {
        let piece = draw.pick(&["%", "%z", "%zz", "%4", "%%", "%-1", "%u0041"]);
        draw.insert(key, piece);
    }),
    (Kind::KeyIpv6, |draw, key| {
        let host = draw.word(
            "[::1] [::1]:5000 [::1]: [::1]:abc [fd00:1::a] [FD00:1::A] [::ffff:10.0.0.1]:5000 \
             [fe80::1%25en0] [fe80::1%en0] [fe80::1%25en%30]:5000 [fe80::1%25] [::1%25*] \
             [0:0:0:0:0:0:0:1]",
        );
        key.replace_range(..host_end(key), host);
    }),
    (Kind::KeyBadIpv6, |draw, key| {
        let host = draw.word(
            "[::1 ::1] ::1 ::1:5000 [] []:5000 [::1]x a[::1] [::g] [quay.io] [10.0.0.1] [[::1]] \
             [::1]] [::1][::1] [1:2:3:4:5:6:7:8:9] [:] [::1%] [v1.a] [::01234] [::1.2.3.256]",
        );
        key.replace_range(..host_end(key), host);
    }),
    (Kind::KeyEmpty, |draw, key| {
        *key = draw
            .pick(&[
                "",
                "",
                "/",
                "//",
                ":",
                ".",
                "https://",
                "http://",
                "https:///",
                "?",
                "#",
                "@",
                "%",
                " ",
                "https:// ",
            ])
            .to_owned();
    }),
    (Kind::KeyNotAscii, |draw, key| {
        let piece = draw.pick(&[
            "\u{e9}",
            "\u{4f8b}\u{3048}",
            "\u{1f433}",
            "e\u{301}",
            "\u{fffd}",
            "\u{212a}",
            "\u{17f}",
            "\u{ff0e}",
            "\u{10ffff}",
        ]);
        draw.insert(key, piece);
    }),
    (Kind::KeySign, |draw, key| {
        let sign = draw.pick(&[
            "<", ">", "\"", "^", "{", "}", "|", "`", "&", "=", "$", ",", ";", "!", "'", "(", ")",
            "~", "_", "-",
        ]);
        draw.insert(key, sign);
    }),
    (Kind::KeyLong, |draw, key| {
        let piece = draw.pick(&["a", ".a", "/a", "*"]).repeat(300);
        draw.insert(key, &piece);
    }),
    (Kind::KeyEdited, |draw, key| {
        for _ in 0..=draw.below(3) {
            if draw.one_in(2) {
                let sign = draw.pick(&[
                    "/", ":", ".", "@", "?", "#", "[", "]", "%", "*", "\\", "-", "_", "a", "0",
                ]);
                draw.insert(key, sign);
            } else if !key.is_empty() {
                let at = draw.below(key.len());
                if key.is_char_boundary(at) {
                    key.remove(at);
                }
            }
        }
    }),
    (Kind::KeyInvalidUtf8, |draw, key| {
        draw.insert(key, INVALID_UTF8)
    }),
    (Kind::KeySurrogate, |draw, key| draw.insert(key, SURROGATE)),
];

/// The end of the host: after a scheme, before a path.
fn host_end(key: &str) -> usize {
    let start = key.find("://").map_or(0, |at| at + 3);
    key[start..].find('/').map_or(key.len(), |at| start + at)
}

fn prefix(key: &mut String, piece: &str) {
    key.insert_str(0, piece);
}

fn behind_host(key: &mut String, piece: &str) {
    key.insert_str(host_end(key), piece);
}

/// Range of a random label of the host in the key.
fn label(draw: &mut Draw, key: &str) -> std::ops::Range<usize> {
    let end = host_end(key);
    let start = key.find("://").map_or(0, |at| at + 3).min(end);
    let host = key[start..end].split(':').next().unwrap_or_default();
    let labels: Vec<&str> = host.split('.').collect();
    let which = draw.below(labels.len());
    let before: usize = labels[..which].iter().map(|label| label.len() + 1).sum();
    start + before..start + before + labels[which].len()
}
