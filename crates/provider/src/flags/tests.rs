use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;

use super::super::environment_file::meaning;
use super::*;

const CONFIG: &str = "/var/lib/kubelet/.globalps/provider.yaml";
const BIN_DIR: &str = "/var/lib/kubelet/.globalps/bin";
const OURS: &str = " --image-credential-provider-config=/var/lib/kubelet/.globalps/provider.yaml \
                        --image-credential-provider-bin-dir=/var/lib/kubelet/.globalps/bin";

#[test]
fn adding_and_removing_the_flags_restores_every_byte() {
    for (before, after) in [
        (
            "KUBELET_KUBEADM_ARGS=\"--v=2\"\n",
            "KUBELET_KUBEADM_ARGS=\"--v=2{}\"\n",
        ),
        ("KUBELET_KUBEADM_ARGS=\"\"", "KUBELET_KUBEADM_ARGS=\"{}\""),
        (
            "# mine\r\nA=\"x\"\r\nKUBELET_KUBEADM_ARGS=\"--a=b --c=d\"  \r\n\r\nB=1",
            "# mine\r\nA=\"x\"\r\nKUBELET_KUBEADM_ARGS=\"--a=b --c=d{}\"  \r\n\r\nB=1",
        ),
    ] {
        let with = add_flags(before.as_bytes(), CONFIG, BIN_DIR).unwrap();
        assert_eq!(String::from_utf8_lossy(&with), after.replace("{}", OURS));
        assert_eq!(add_flags(&with, CONFIG, BIN_DIR).unwrap(), with, "twice");
        assert_eq!(remove_flags(&with, CONFIG, BIN_DIR), before.as_bytes());
        assert_eq!(
            remove_flags(before.as_bytes(), CONFIG, BIN_DIR),
            before.as_bytes()
        );
    }
}

/// Found by the properties below. A line that ends with a backslash continues in the next one, and here there is none.
#[test]
fn nothing_of_a_value_that_is_only_a_backslash_is_lost() {
    let before = b"KUBELET_KUBEADM_ARGS= \\".as_slice();
    match add_flags(before, CONFIG, BIN_DIR) {
        Ok(with) => assert_eq!(remove_flags(&with, CONFIG, BIN_DIR), before),
        Err(error) => assert!(matches!(error, FlagsError::NoVariable), "{error:?}"),
    }
}

/// Files as kubeadm, people and configuration management write them: ours are there, in any place and form.
#[test]
fn both_flags_in_any_place_are_no_drift_and_leave_cleanly() {
    let (config, bin_dir) = (
        format!("{CONFIG_FLAG}={CONFIG}"),
        format!("{BIN_DIR_FLAG}={BIN_DIR}"),
    );
    let two_words = format!("{CONFIG_FLAG} {CONFIG} --b {BIN_DIR_FLAG} {BIN_DIR}");
    let underscores = config.replace("credential-provider-config", "credential_provider_config");
    for (with, without) in [
        // kubeadm 1.35 sorts.
        (
            format!("V=\"--a=b {bin_dir} {config} --z=1\"\n"),
            "V=\"--a=b --z=1\"\n",
        ),
        (format!("V=\"{bin_dir} {config}\"\n"), "V=\"\"\n"),
        (format!("V=\"{config} --v=2 {bin_dir}\""), "V=\"--v=2\""),
        (format!("V=\"{two_words}\"\n"), "V=\"--b\"\n"),
        (format!("V='--a {config}  {bin_dir}'\n"), "V='--a '\n"),
        (
            format!("V={config} {bin_dir} --a=b\r\nW=1\n"),
            "V=--a=b\r\nW=1\n",
        ),
        (format!("V={bin_dir} {config}"), "V="),
        (
            format!("V=\"--a \\\n  {bin_dir} \\\n  {config} --b\"\n"),
            "V=\"--a \\\n  \\\n  --b\"\n",
        ),
        (
            format!("V =  \"--a \"'{config}'\" {bin_dir}/\"\n"),
            "V =  \"--a\"''\"\"\n",
        ),
        (
            format!("V=\"--a \\\"{config}\\\" '{bin_dir}'\"\n"),
            "V=\"--a\"\n",
        ),
        (format!("V=\"{underscores} {bin_dir}\"\n"), "V=\"\"\n"),
        (format!("V=\"{config} {bin_dir} {config}\"\n"), "V=\"\"\n"),
        (
            format!("V=x\n; V=y\nV=\"{config} {bin_dir}\"\n"),
            "V=x\n; V=y\nV=\"\"\n",
        ),
        // Unquoted, the quote means itself; it would begin the value of what is left.
        (format!("V={config} {bin_dir} \"\\\\ \"\n"), "V=\"\\\\ \"\n"),
    ] {
        let with = with.replace('V', FLAGS_VARIABLE);
        let without = without.replace('V', FLAGS_VARIABLE);
        let added = add_flags(with.as_bytes(), CONFIG, BIN_DIR).unwrap();
        assert_eq!(String::from_utf8_lossy(&added), with, "no drift");
        let removed = remove_flags(with.as_bytes(), CONFIG, BIN_DIR);
        assert_eq!(String::from_utf8_lossy(&removed), without, "{with}");
    }
}

#[test]
fn one_flag_of_two_becomes_both_or_none() {
    for left in [
        format!("{CONFIG_FLAG}={CONFIG}"),
        format!("{BIN_DIR_FLAG}={BIN_DIR}"),
    ] {
        let file = format!("KUBELET_KUBEADM_ARGS=\"--a=b {left} --z\"\n");
        let both = add_flags(file.as_bytes(), CONFIG, BIN_DIR).unwrap();
        let ours = OURS.trim_start();
        assert_eq!(
            String::from_utf8_lossy(&both),
            format!("KUBELET_KUBEADM_ARGS=\"{ours} --a=b --z\"\n"),
            "not after `--z`, which may take the next word"
        );
        for file in [file.as_bytes(), &both] {
            assert_eq!(
                remove_flags(file, CONFIG, BIN_DIR),
                b"KUBELET_KUBEADM_ARGS=\"--a=b --z\"\n"
            );
        }
    }
}

#[test]
fn the_flags_come_first_where_the_last_word_would_take_them() {
    for value in [
        "\"--z\"",
        "\"--a=b -- x\"",
        "'--a \"'",
        "--a\\\\",
        "\"--a \\\\\"",
    ] {
        let file = format!("KUBELET_KUBEADM_ARGS={value}\n");
        let with = add_flags(file.as_bytes(), CONFIG, BIN_DIR).unwrap();
        let text = String::from_utf8_lossy(&with);
        assert!(
            text.contains(&format!("{} --", OURS.trim_start())),
            "{text}"
        );
        assert_eq!(remove_flags(&with, CONFIG, BIN_DIR), file.as_bytes());
    }
}

#[test]
fn unsupported_files_are_rejected() {
    for (file, error) in [
        ("", FlagsError::NoVariable),
        ("#KUBELET_KUBEADM_ARGS=\"a\"\n", FlagsError::NoVariable),
        (
            "export KUBELET_KUBEADM_ARGS=\"a\"\n",
            FlagsError::NoVariable,
        ),
        ("KUBELET_KUBEADM_ARGS\n=\"a\"\n", FlagsError::NoVariable),
        // systemd drops a value with control characters, and before 254 took this line for a comment.
        (
            "KUBELET_KUBEADM_ARGS=\"a\\\r\n\"\r\n",
            FlagsError::NoVariable,
        ),
        (
            "# path\\\nKUBELET_KUBEADM_ARGS=\"a\"\n",
            FlagsError::NoVariable,
        ),
        ("KUBELET_KUBEADM_ARGS=\"\0\"\n", FlagsError::NotText),
        (
            "KUBELET_KUBEADM_ARGS=\"\"\nKUBELET_EXTRA_ARGS='--image-credential-provider-config /etc/x'\n",
            FlagsError::Foreign("--image-credential-provider-config=/etc/x".to_owned()),
        ),
        (
            "KUBELET_KUBEADM_ARGS=\"--image-credential-provider-config\"\n",
            FlagsError::Foreign("--image-credential-provider-config=".to_owned()),
        ),
        (
            "KUBELET_KUBEADM_ARGS=\"--image-credential-provider-config=/etc/x\"\n",
            FlagsError::Foreign("--image-credential-provider-config=/etc/x".to_owned()),
        ),
        (
            "KUBELET_KUBEADM_ARGS=\"--image-credential-provider-bin-dir /x\"\n",
            FlagsError::Foreign("--image-credential-provider-bin-dir=/x".to_owned()),
        ),
    ] {
        assert_eq!(
            add_flags(file.as_bytes(), CONFIG, BIN_DIR),
            Err(error),
            "{file}"
        );
    }
    assert_eq!(
        add_flags(b"A=\xff\nKUBELET_KUBEADM_ARGS=x", CONFIG, BIN_DIR),
        Err(FlagsError::NotText)
    );
    let file = b"KUBELET_KUBEADM_ARGS=\"\"\n";
    for path in ["/a b", "/a\"", "/a$b", "/a\nb", "/\u{e9}"] {
        assert_eq!(
            add_flags(file, path, BIN_DIR),
            Err(FlagsError::Path),
            "{path}"
        );
    }
}

#[test]
fn flags_with_a_longer_path_are_foreign() {
    let theirs = format!("KUBELET_KUBEADM_ARGS=\"{OURS}-of-theirs\"\n");
    let found = remove_flags(theirs.as_bytes(), CONFIG, BIN_DIR);
    let left = format!(
        "KUBELET_KUBEADM_ARGS=\"{}-of-theirs\"\n",
        &OURS[OURS.rfind(' ').unwrap()..]
    );
    assert_eq!(
        String::from_utf8_lossy(&found),
        left,
        "ours would name an absent file"
    );
}

const VARIABLES: [&str; 4] = ["A", "KUBELET_EXTRA_ARGS", "KUBELET_KUBEADM_ARGS", "Z_1"];
const WORDS: [&str; 12] = [
    "--v=2",
    "--node-labels=a=\"b\",c='d'",
    "--bare",
    "value",
    "",
    "--dollar=$HOME`x`",
    "--path=C:\\dir\\",
    "two words\tand\nlines",
    "--utf8=\u{e9}\u{4e16}",
    "#no",
    "a;b",
    "--image-credential-provider-configs=x",
];

/// A random spelling of one byte of a word, or of the space between two. `random` decides.
fn spelled(value: &[u8], style: u8, random: &mut impl FnMut(u8) -> u8) -> Vec<u8> {
    let mut text = Vec::new();
    for byte in value {
        let is_newline = matches!(byte, b'\n' | b'\r');
        match style {
            // A quote ends a single-quoted text.
            0 if *byte == b'\'' => text.extend(b"'\"'\"'"),
            0 => text.push(*byte),
            1 => {
                if random(20) == 0 {
                    text.extend(b"\\\n");
                }
                let is_special = b"\"\\`$".contains(byte);
                text.extend(is_special.then_some(b'\\'));
                text.push(*byte);
            }
            // Unquoted, a newline can't be escaped.
            _ if is_newline => text.push(b' '),
            _ => {
                let is_special = b"\"\\' \t;#".contains(byte);
                text.extend((is_special || random(8) == 0).then_some(b'\\'));
                text.push(*byte);
            }
        }
    }
    match style {
        0 => [b"'", &text[..], b"'"].concat(),
        1 => [b"\"", &text[..], b"\""].concat(),
        _ => text,
    }
}

/// A file with these assignments in a random spelling.
fn file(assignments: &[(String, Vec<String>)], mut random: impl FnMut(u8) -> u8) -> Vec<u8> {
    let mut file = Vec::new();
    for (name, words) in assignments {
        let mut value = Vec::new();
        let style = random(3);
        for (index, word) in words.iter().enumerate() {
            let spaces = [" ", "  ", "\t", " \t "];
            if index > 0 || random(4) == 0 {
                value.extend(spaces[usize::from(random(4))].bytes());
            }
            let quote = random(3);
            for byte in word.bytes() {
                // The words' own quoting is inside the value.
                let is_special = b"\"\\' \t\n".contains(&byte);
                if is_special || byte.is_ascii() && quote == 1 && random(6) == 0 {
                    value.push(b'\\');
                }
                value.push(byte);
            }
            if word.is_empty() || quote == 2 && random(2) == 0 {
                value.extend(if random(2) == 0 { b"''" } else { b"\"\"" });
            }
        }
        if random(4) == 0 {
            file.extend(b"# a comment with KUBELET_KUBEADM_ARGS=\"x\n\n");
        }
        file.extend(name.bytes());
        file.extend(["=", " =", "=  ", "= \t"][usize::from(random(4))].bytes());
        file.extend(spelled(&value, style, &mut random));
        file.extend(["\n", "\r\n", "  \n"][usize::from(random(3))].bytes());
    }
    if random(2) == 0 {
        file.truncate(file.trim_ascii_end().len());
    }
    file
}

fn words() -> impl Strategy<Value = Vec<String>> {
    let word = select(&WORDS[..]).prop_map(str::to_owned);
    prop::collection::vec(word, 0..5)
}

fn variables() -> impl Strategy<Value = Vec<(String, Vec<String>)>> {
    let name = select(&VARIABLES[..]).prop_map(str::to_owned);
    prop::collection::vec((name, words()), 0..4)
}

/// Numbers below the argument, from a list that repeats.
fn numbers(list: Vec<u8>) -> impl FnMut(u8) -> u8 {
    let mut list = list.into_iter().cycle();
    move |below| list.next().unwrap_or_default() % below
}

fn seed() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..200)
}

/// The words of each variable. Newlines are spaces: unquoted, there are none.
fn understood(assignments: &[(String, Vec<String>)]) -> Vec<(Vec<u8>, Vec<Vec<u8>>)> {
    let all = assignments.iter().map(|(name, words)| {
        let words = words.iter().map(|word| word.clone().into_bytes()).collect();
        (name.clone().into_bytes(), words)
    });
    spaced(all.collect())
}

fn spaced(mut meaning: Vec<(Vec<u8>, Vec<Vec<u8>>)>) -> Vec<(Vec<u8>, Vec<Vec<u8>>)> {
    let bytes = meaning
        .iter_mut()
        .flat_map(|(_, words)| words.iter_mut().flatten());
    for byte in bytes.filter(|byte| **byte == b'\n') {
        *byte = b' ';
    }
    meaning
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(0x676c_6f62),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn words_are_read_as_they_were_written(variables in variables(), seed in seed()) {
        let file = file(&variables, numbers(seed));
        prop_assert_eq!(spaced(meaning(&file)), understood(&variables), "{}", file.escape_ascii());
    }

    #[test]
    fn what_is_added_is_seen_and_removing_it_restores_every_byte(
        variables in variables(), seed in seed(),
    ) {
        let before = file(&variables, numbers(seed));
        let has_variable = variables.iter().any(|(name, _)| name == FLAGS_VARIABLE);
        let added = add_flags(&before, CONFIG, BIN_DIR);
        prop_assert_eq!(added.is_ok(), has_variable, "{}: {:?}", before.escape_ascii(), added);
        if let Ok(with) = added {
            let (_, seen) = meaning(&with).into_iter().rfind(|(name, _)| name == FLAGS_VARIABLE.as_bytes()).unwrap();
            for flag in OURS.split_whitespace() {
                prop_assert!(seen.iter().any(|word| word == flag.as_bytes()), "{}", with.escape_ascii());
            }
            prop_assert_eq!(add_flags(&with, CONFIG, BIN_DIR).unwrap(), with.clone());
            prop_assert_eq!(remove_flags(&with, CONFIG, BIN_DIR), before);
        }
    }

    /// Others write the file again with our flags among theirs, in another order and spelling.
    #[test]
    fn moved_flags_are_no_drift_and_leave_everything_else(
        variables in variables(), mine in words(), places in (0..5_usize, 0..5_usize), forms in (any::<bool>(), any::<bool>()),
        seed in seed(),
    ) {
        let mine: Vec<_> = mine.into_iter().filter(|word| !may_take_next(&Word::of(word))).collect();
        let mut with = mine.clone();
        for ((flag, path), (place, is_one)) in [(CONFIG_FLAG, CONFIG), (BIN_DIR_FLAG, BIN_DIR)].into_iter()
            .zip([(places.0, forms.0), (places.1, forms.1)])
        {
            let place = place.min(with.len());
            // Must not separate the other flag from its value.
            let place = if place > 0 && with[place - 1] == CONFIG_FLAG { place - 1 } else { place };
            let words = if is_one { vec![format!("{flag}={path}")] } else { vec![flag.to_owned(), path.to_owned()] };
            with.splice(place..place, words);
        }
        let (mut all, mut left) = (variables.clone(), variables);
        all.push((FLAGS_VARIABLE.to_owned(), with));
        left.push((FLAGS_VARIABLE.to_owned(), mine));
        let file = file(&all, numbers(seed));
        prop_assert_eq!(add_flags(&file, CONFIG, BIN_DIR), Ok(file.clone()), "{}", file.escape_ascii());
        let removed = remove_flags(&file, CONFIG, BIN_DIR);
        prop_assert_eq!(spaced(meaning(&removed)), understood(&left), "{}", file.escape_ascii());
    }

    #[test]
    fn any_bytes_stay_without_managed_flags(bytes in prop::collection::vec(select(b"AK=\"'\\ \n\r#;-x\0\xff".to_vec()), 0..40)) {
        prop_assert_eq!(remove_flags(&bytes, CONFIG, BIN_DIR), bytes.clone());
        let named = [b"\nKUBELET_KUBEADM_ARGS=", &bytes[..]].concat();
        if let Ok(with) = add_flags(&named, CONFIG, BIN_DIR) {
            prop_assert_eq!(remove_flags(&with, CONFIG, BIN_DIR), named);
        }
    }
}
