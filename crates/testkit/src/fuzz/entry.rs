//! Generates the values of `auths`.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::auth;
use super::draw::Draw;
use super::json::{INVALID_UTF8, SURROGATE, field, member, nested, object, other_type, string};
use super::kind::Kind;

/// An entry that the kubelet accepts.
pub(super) fn sound(draw: &mut Draw) -> String {
    let mut members = Vec::new();
    match draw.below(16) {
        0 => {
            draw.note(Kind::EntryUserAndPassword);
            members.extend([text(draw, "username"), text(draw, "password")]);
        }
        1 => {
            draw.note(Kind::EntryAll);
            members.extend([
                text(draw, "username"),
                text(draw, "password"),
                auth_member(draw),
            ]);
        }
        2 if draw.one_in(2) => {
            let name = draw.kind(&[
                (Kind::EntryUserOnly, "username"),
                (Kind::EntryPasswordOnly, "password"),
                (Kind::EntryIdentityTokenOnly, "identitytoken"),
            ]);
            members.push(text(draw, name));
        }
        3 if draw.one_in(2) => {
            return draw
                .kind(&[(Kind::EntryEmpty, "{}"), (Kind::EntryNull, "null")])
                .to_owned();
        }
        _ => members.push(auth_member(draw)),
    }
    if draw.one_in(8) {
        let name = draw.kind(&[
            (Kind::EntryEmail, "email"),
            (Kind::EntryIdentityToken, "identitytoken"),
            (Kind::EntryRegistryToken, "registrytoken"),
        ]);
        members.push(text(draw, name));
    }
    if draw.one_in(16) {
        draw.note(Kind::EntryUnknown);
        let value = draw.pick(&[
            "null",
            "1e400",
            "[1,{\"auth\":7}]",
            "{\"auths\":{}}",
            "-0",
            "\"\"",
        ]);
        let name = draw.pick(&[
            "\"x\"",
            "\"\"",
            "\"auths\"",
            "\"Provider\"",
            "\"serveraddress\"",
            "\"\\u0000\"",
        ]);
        members.push(member(draw, name, value));
    }
    if draw.one_in(24) {
        draw.note(Kind::EntryFieldNull);
        let name = draw.pick(&["auth", "username", "password", "email", "identitytoken"]);
        let name = field(draw, name);
        members.push(member(draw, &name, "null"));
    }
    if draw.one_in(48) {
        draw.note(Kind::EntryFieldsNull);
        for name in ["auth", "username", "password", "email", "identitytoken"] {
            let name = field(draw, name);
            members.push(member(draw, &name, "null"));
        }
    }
    if draw.one_in(24) {
        draw.note(Kind::EntryFieldTwice);
        members.push(auth_member(draw));
    }
    draw.shuffle(&mut members);
    object(draw, &members)
}

/// An entry that may make a reader ignore it, or the whole file.
pub(super) fn odd(draw: &mut Draw) -> String {
    let mut members = vec![auth_member(draw)];
    match draw.below(10) {
        0..=4 => {
            let value = auth::odd(draw);
            let name = field(draw, "auth");
            let value = string(draw, &value);
            members[0] = member(draw, &name, &value);
            if draw.one_in(3) {
                members.extend([text(draw, "username"), text(draw, "password")]);
            }
        }
        5 if draw.one_in(3) => {
            draw.note(Kind::EntryText);
            let text = sound(draw);
            return encoded(draw, &text);
        }
        5 => {
            draw.note(Kind::EntryNotObject);
            return draw
                .pick(&[
                    "1", "\"dTpw\"", "\"\"", "[]", "true", "false", "1e999", "[{}]",
                ])
                .to_owned();
        }
        6 | 7 => {
            draw.note(Kind::EntryFieldOtherType);
            let name = draw.word("auth username password email identitytoken registrytoken");
            let (name, value) = (field(draw, name), other_type(draw));
            members.push(member(draw, &name, value));
        }
        8 => {
            draw.note(Kind::EntryBadThenGood);
            // The last duplicate counts, but an invalid earlier one may still matter.
            let bad = auth::odd(draw);
            let bad = string(draw, &bad);
            members.insert(0, member(draw, "\"auth\"", &bad));
            return object(draw, &members);
        }
        _ => {
            draw.note(Kind::EntryDeep);
            let depth = draw.pick(&[3, 100, 9_996, 9_997, 9_998, 9_999]);
            let objects = draw.one_in(2);
            members.push(member(draw, "\"x\"", &nested(depth, objects)));
        }
    }
    draw.shuffle(&mut members);
    object(draw, &members)
}

/// A value that was encoded once too often: as a string, or as base64 in a string.
pub(super) fn encoded(draw: &mut Draw, value: &str) -> String {
    let text = if draw.one_in(2) {
        value.to_owned()
    } else {
        BASE64_STANDARD.encode(value)
    };
    string(draw, &text)
}

fn auth_member(draw: &mut Draw) -> String {
    let name = field(draw, "auth");
    let value = auth::sound(draw);
    let value = string(draw, &value);
    member(draw, &name, &value)
}

/// A field with some text.
fn text(draw: &mut Draw, name: &str) -> String {
    let name = field(draw, name);
    let value = match draw.below(12) {
        0 => draw
            .kind(&[
                (Kind::TextEmpty, ""),
                (Kind::TextNotAscii, "r\u{f6}bot\u{1f433}"),
                (Kind::TextSurrogate, SURROGATE),
                (Kind::TextInvalidUtf8, INVALID_UTF8),
                (Kind::TextControl, "a\nb\0c\u{7f}"),
                (Kind::TextColon, "a:b"),
                (Kind::TextToken, "<token>"),
            ])
            .to_owned(),
        _ => format!("t{}", draw.below(1_000_000)),
    };
    let value = string(draw, &value);
    member(draw, &name, &value)
}
