//! Generates whole credentials files.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::draw::Draw;
use super::entry;
use super::json::{bytes, field, member, nested, object, other_type, space, string};
use super::kind::Kind;
use super::places::Places;

/// A file with these keys; a few files have no entries for them.
pub(super) fn document(draw: &mut Draw, keys: &[String], places: &Places) -> Vec<u8> {
    // A single invalid entry makes the kubelet ignore the whole file, so most files have none.
    let odd_entries = draw.one_in(5);
    let mut members = vec![auths(draw, keys, odd_entries)];
    if draw.one_in(25) {
        auths_again(draw, keys, &mut members);
    }
    if draw.one_in(20) {
        http_headers(draw, &mut members);
    }
    if draw.one_in(15) {
        cred_helpers(draw, places, &mut members);
    }
    if draw.one_in(40) {
        draw.note(Kind::FileNulls);
        for name in ["credHelpers", "credsStore", "HttpHeaders", "detachKeys"] {
            let name = field(draw, name);
            members.push(member(draw, &name, "null"));
        }
    }
    if draw.one_in(20) {
        draw.note(Kind::FileOtherMembers);
        let value = draw.pick(&[
            "null",
            "\"desktop\"",
            "1e-999",
            "[[[]]]",
            "{\"auths\":{\"quay.io\":1}}",
            "[1,2.5e+10,-3]",
        ]);
        let name = draw.pick(&[
            "\"credsStore\"",
            "\"\"",
            "\"x\"",
            "\"proxies\"",
            "\"authsx\"",
            "\"\\ud800\"",
        ]);
        members.push(member(draw, name, value));
    }
    if draw.one_in(150) {
        draw.note(Kind::FileDeep);
        let depth = draw.pick(&[100, 9_997, 9_998, 9_999, 10_000, 10_001, 20_000]);
        let objects = draw.one_in(2);
        members.push(member(draw, "\"x\"", &nested(depth, objects)));
    }
    if draw.one_in(1_000) {
        draw.note(Kind::FileLarge);
        let value = format!("\"{}\"", "x".repeat(100_000));
        members.push(member(draw, "\"x\"", &value));
    }
    if draw.one_in(4) {
        draw.shuffle(&mut members);
    }
    let text = object(draw, &members);
    let mut file = bytes(draw, &text);
    if draw.one_in(14) {
        damage(draw, &mut file);
    }
    file
}

fn entries(draw: &mut Draw, keys: &[String], odd: bool) -> String {
    let mut members = Vec::new();
    for key in keys {
        let value = if odd && draw.one_in(3) {
            entry::odd(draw)
        } else {
            entry::sound(draw)
        };
        let key = string(draw, key);
        members.push(member(draw, &key, &value));
    }
    object(draw, &members)
}

fn auths(draw: &mut Draw, keys: &[String], odd: bool) -> String {
    let name = field(draw, "auths");
    let value = match draw.below(60) {
        1 if draw.one_in(2) => {
            draw.note(Kind::FileAuthsText);
            let value = entries(draw, keys, odd);
            entry::encoded(draw, &value)
        }
        0 => draw
            .kind(&[
                (Kind::FileAuthsNull, "null"),
                (Kind::FileAuthsEmpty, "{}"),
                (Kind::FileAuthsOtherType, "[]"),
                (Kind::FileAuthsOtherType, "\"a\""),
                (Kind::FileAuthsOtherType, "1"),
                (Kind::FileAuthsOtherType, "false"),
            ])
            .to_owned(),
        _ => entries(draw, keys, odd),
    };
    member(draw, &name, &value)
}

/// Go merges a second `auths` into the map of the first.
fn auths_again(draw: &mut Draw, keys: &[String], members: &mut Vec<String>) {
    let name = field(draw, "auths");
    let value = match draw.below(4) {
        0 => {
            draw.note(Kind::FileAuthsThenNull);
            "null".to_owned()
        }
        1 => {
            draw.note(Kind::FileAuthsThenOtherType);
            other_type(draw).to_owned()
        }
        _ => {
            draw.note(Kind::FileAuthsTwice);
            let mut keys = keys.to_vec();
            draw.shuffle(&mut keys);
            let number = draw.below(keys.len() + 1);
            keys.truncate(number);
            keys.push("reg.example.com".to_owned());
            entries(draw, &keys, false)
        }
    };
    let again = member(draw, &name, &value);
    let at = draw.below(members.len() + 1);
    members.insert(at, again);
}

fn http_headers(draw: &mut Draw, members: &mut Vec<String>) {
    let value = draw.kind(&[
        (Kind::HeadersSound, "{}"),
        (Kind::HeadersSound, "null"),
        (Kind::HeadersSound, "{\"User-Agent\":\"x\",\"a\":\"b\"}"),
        (Kind::HeadersSound, "{\"a\":null}"),
        (Kind::HeadersOtherType, "{\"a\":1}"),
        (Kind::HeadersOtherType, "{\"a\":[\"b\"]}"),
        (Kind::HeadersOtherType, "[]"),
        (Kind::HeadersOtherType, "\"a\""),
    ]);
    let name = field(draw, "HttpHeaders");
    members.push(member(draw, &name, value));
}

fn cred_helpers(draw: &mut Draw, places: &Places, members: &mut Vec<String>) {
    let helper = draw.pick(&[
        "\"ecr-login\"",
        "\"\"",
        "\"x/../y\"",
        "\"a b\"",
        "\"\\u0000\"",
        "null",
    ]);
    let host = places.host(draw);
    let value = match draw.below(8) {
        0..=3 => {
            draw.note(Kind::HelpersOfHost);
            format!("{{{}:{helper}}}", string(draw, host))
        }
        4 => {
            draw.note(Kind::HelpersOfPath);
            format!(
                "{{\"{host}/{}\":{helper},\"https://{host}\":\"x\"}}",
                places.path(draw)
            )
        }
        5 if draw.one_in(2) => {
            draw.note(Kind::HelpersNull);
            let (host, none) = (string(draw, host), draw.pick(&["null", "\"\""]));
            format!("{{{host}:\"x\",\"quay.io\":null,{host}:{none}}}")
        }
        5 => {
            draw.note(Kind::HelpersEmpty);
            draw.pick(&["{}", "null"]).to_owned()
        }
        _ => {
            draw.note(Kind::HelpersOtherType);
            draw.pick(&["{\"quay.io\":1}", "{\"a\":{}}", "[]", "\"a\"", "1"])
                .to_owned()
        }
    };
    let name = field(draw, "credHelpers");
    members.push(member(draw, &name, &value));
    if draw.one_in(5) {
        draw.note(Kind::HelpersTwice);
        let value = draw.pick(&["null", "{}", "{\"gcr.io\":\"gcloud\"}"]);
        let name = field(draw, "credHelpers");
        members.push(member(draw, &name, value));
    }
}

/// A possible change of the bytes, with its name.
type Damage = (Kind, fn(&mut Draw, &mut Vec<u8>));

const DAMAGES: [Damage; 26] = [
    (Kind::FileUtf16, |draw, file| utf16(draw, file, "\u{feff}")),
    (Kind::FileUtf16Unmarked, |draw, file| utf16(draw, file, "")),
    (Kind::FileEncoded, |draw, file| {
        let text = BASE64_STANDARD.encode(&*file);
        *file = match draw.below(4) {
            0 => text,
            1 => format!("{text}\n"),
            2 => format!("\"{text}\""),
            _ => BASE64_STANDARD.encode(text),
        }
        .into();
    }),
    (Kind::FileManifest, |draw, file| {
        let text = BASE64_STANDARD.encode(&*file);
        *file = if draw.one_in(2) {
            format!("apiVersion: v1\nkind: Secret\ndata:\n  .dockerconfigjson: {text}\n")
        } else {
            format!("{{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"data\":{{\".dockerconfigjson\":\"{text}\"}}}}")
        }
        .into();
    }),
    (Kind::FileByteOrderMark, |_, file| {
        file.splice(0..0, *b"\xef\xbb\xbf");
    }),
    (Kind::FileSpaceAround, |draw, file| {
        let piece = draw.pick(&[" ", "\n", "\r\n\t "]);
        file.splice(0..0, piece.bytes());
        file.extend_from_slice(piece.as_bytes());
    }),
    (Kind::FileOddSpaceAround, |draw, file| {
        let piece = draw.pick(&["\u{b}", "\u{c}", "\u{a0}", "\u{85}", "\u{2028}", "\0"]);
        if draw.one_in(2) {
            file.splice(0..0, piece.bytes());
        } else {
            file.extend_from_slice(piece.as_bytes());
        }
    }),
    (Kind::FileMoreBehind, |draw, file| {
        let piece = draw.pick(&[
            "x",
            "{}",
            "null",
            ",",
            "}",
            "]",
            "\u{feff}",
            "// end",
            "\n{\"auths\":{}}",
        ]);
        file.extend_from_slice(piece.as_bytes());
    }),
    (Kind::FileCutOff, |draw, file| {
        let length = draw.below(file.len() + 1);
        file.truncate(length);
    }),
    (Kind::FileByteChanged, |draw, file| {
        let at = draw.below(file.len());
        file[at] = draw.byte();
    }),
    (Kind::FileByteGone, |draw, file| {
        let at = draw.below(file.len());
        file.remove(at);
    }),
    (Kind::FileByteMore, |draw, file| {
        let at = draw.below(file.len() + 1);
        let byte = draw.pick(b"\"\\{}[],: \n\t\0/aeu0-+.\x7f\x80");
        file.insert(at, byte);
    }),
    (Kind::FileTrailingComma, |_, file| insert_last(file, ",")),
    (Kind::FileComment, |draw, file| {
        let comment = draw.pick(&["/* a */", "// a\n", "# a\n"]);
        if draw.one_in(2) {
            file.splice(0..0, comment.bytes());
        } else {
            insert_last(file, comment);
        }
    }),
    (Kind::FileBadNumber, |draw, file| {
        let number = draw.pick(&[
            "01", "+1", "1.", ".5", "1e", "0x1", "-", "NaN", "Infinity", "1_0", "--1",
        ]);
        insert_last(file, &format!(",\"x\":{number}"));
    }),
    (Kind::FileOddNumber, |draw, file| {
        let number =
            draw.word("-0 1E5 1e+5 0.0 1e-400 123456789012345678901234567890 1e99999999999");
        insert_last(file, &format!(",\"x\":{number}"));
    }),
    (Kind::FileBadLiteral, |draw, file| {
        let literal = draw.pick(&["nul", "True", "NULL", "nulll", "undefined", "tru", "yes"]);
        insert_last(file, &format!(",\"x\":{literal}"));
    }),
    (Kind::FileBadEscape, |draw, file| {
        let text = draw.pick(&[
            "\\x41", "\\u12", "\\u12g4", "\\'", "\\", "\\U0041", "\\0", "\\a", "\\u 041",
        ]);
        insert_last(file, &format!(",\"x\":\"{text}\""));
    }),
    (Kind::FileRawControl, |draw, file| {
        let control = draw.pick(&["\n", "\t", "\0", "\u{1f}", "\r", "\u{7f}"]);
        insert_last(file, &format!(",\"x\":\"{control}\""));
    }),
    (Kind::FileOtherQuotes, |draw, file| {
        let text = draw.pick(&[
            "'x':1",
            "x:1",
            "\u{201c}x\u{201d}:1",
            "`x`:1",
            "null:1",
            "1:1",
        ]);
        insert_last(file, &format!(",{text}"));
    }),
    (Kind::FileUnfinished, |draw, file| {
        let text = draw.pick(&[
            ",\"x\"",
            ",\"x\":",
            ",\"x\" 1",
            ",,\"x\":1",
            "\"x\":1",
            ",\"x\"::1",
            ",\"x\":[1,]",
            ",\"x\":[1 2]",
            ",\"x\":[}",
        ]);
        insert_last(file, text);
    }),
    (Kind::FileEmpty, |draw, file| {
        *file = draw.pick(&["", " ", "\n", "\0", "\u{feff}"]).into();
    }),
    (Kind::FileNotObject, |draw, file| {
        *file = draw
            .pick(&[
                "null",
                "[]",
                "1",
                "\"a\"",
                "true",
                "[{\"auths\":{}}]",
                " null ",
            ])
            .into();
    }),
    (Kind::FileNoAuths, |draw, file| {
        *file = draw
            .pick(&[
                "{}",
                "{\"a\":1}",
                "{\"HttpHeaders\":{}}",
                "{\"credHelpers\":{\"quay.io\":\"x\"}}",
            ])
            .into();
    }),
    (Kind::FileOldForm, |draw, file| {
        let value = entry::sound(draw);
        *file = format!("{{\"quay.io\":{value},\"https://index.docker.io/v1/\":{value}}}").into();
    }),
    (Kind::FileNestedWhole, |draw, file| {
        let outer = draw.pick(&["config", "data", ".dockerconfigjson", "auth"]);
        file.splice(0..0, format!("{{\"{outer}\":{}", space(draw)).into_bytes());
        file.push(b'}');
    }),
];

/// Inserts the text before the last brace.
fn insert_last(file: &mut Vec<u8>, text: &str) {
    let at = file
        .iter()
        .rposition(|byte| *byte == b'}')
        .unwrap_or(file.len());
    file.splice(at..at, text.bytes());
}

/// The file in either byte order.
fn utf16(draw: &mut Draw, file: &mut Vec<u8>, mark: &str) {
    let text = format!("{mark}{}", String::from_utf8_lossy(file));
    let to_bytes = draw.pick(&[u16::to_le_bytes as fn(u16) -> [u8; 2], u16::to_be_bytes]);
    *file = text.encode_utf16().flat_map(to_bytes).collect();
}

fn damage(draw: &mut Draw, file: &mut Vec<u8>) {
    let (kind, change) = draw.pick(&DAMAGES);
    draw.note(kind);
    change(draw, file);
}
