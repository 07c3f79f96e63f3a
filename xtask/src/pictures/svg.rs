//! Renders a terminal's screen as SVG, with its colours; and the lines of a program as an animation.

use std::fmt::Write as _;
use std::time::Duration;

use vt100::{Cell, Color, Parser, Screen};

/// Width of a character, in the picture's units.
const WIDTH: f32 = 8.4;
const HEIGHT: u16 = 19;
const MARGIN: u16 = 14;
const BACKGROUND: &str = "#1d1f21";
const FOREGROUND: &str = "#d8dadc";
/// The eight standard colours, and their bright variants.
const PALETTE: [&str; 16] = [
    "#1d1f21", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d8dadc",
    "#7f848e", "#ff7b86", "#b5e890", "#ffd68a", "#7cc4ff", "#dd92f5", "#6fd6e2", "#ffffff",
];

/// Renders the screen after these bytes, this many columns wide and as high as its content.
pub fn svg(shown: &str, columns: u16) -> String {
    let mut parser = Parser::new(200, columns, 0);
    parser.process(shown.as_bytes());
    let screen = parser.screen();
    let rows = (0..200)
        .rev()
        .find(|row| (0..columns).any(|column| is_inked(screen, *row, column)))
        .map_or(1, |row| row + 1);
    let mut svg = frame(columns, rows);
    for row in 0..rows {
        let y = MARGIN + row * HEIGHT + 14;
        for (column, style, text) in runs(screen, row, columns) {
            let x = f32::from(MARGIN) + f32::from(column) * WIDTH;
            let length = WIDTH * f32::from(u16::try_from(text.chars().count()).unwrap_or(u16::MAX));
            // Writing to a String does not fail.
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{y}\" textLength=\"{length:.1}\" xml:space=\"preserve\"{style}>{}</text>",
                escaped(&text)
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// The beginning of the picture: its size, font and background.
fn frame(columns: u16, rows: u16) -> String {
    let width = f32::from(columns) * WIDTH + f32::from(2 * MARGIN);
    let height = rows * HEIGHT + 2 * MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height}\" font-family=\"ui-monospace, \
         SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" font-size=\"14\">\n<rect width=\"100%\" \
         height=\"100%\" rx=\"6\" fill=\"{BACKGROUND}\"/>\n"
    )
}

/// Longest time without a new line in a recording.
const LONGEST_PAUSE: Duration = Duration::from_millis(1500);
/// How long a recording shows its end before it starts again.
const END: Duration = Duration::from_secs(6);

/// Renders lines as an animation that scrolls and starts again by itself. `lines`: each with the time when it was printed.
/// Longer lines are cut.
pub fn recording(lines: &[(Duration, String)], columns: u16, rows: u16) -> String {
    let mut svg = frame(columns, rows);
    let height = f32::from(HEIGHT);
    // Everything is drawn at once, below a cover that moves down; both scroll.
    let mut at = Duration::ZERO;
    let mut previous = Duration::ZERO;
    let mut moves = Vec::new();
    let mut drawn = String::new();
    for (number, (time, line)) in (1_u16..).zip(lines) {
        at += time.saturating_sub(previous).min(LONGEST_PAUSE);
        previous = *time;
        moves.push((at, number));
        let line: String = line.chars().take(columns.into()).collect();
        if line.trim().is_empty() {
            continue;
        }
        let fill = match line.trim_start().get(..3) {
            Some("==>") => PALETTE[4],
            Some("$ k" | "$ m") => PALETTE[2],
            _ => FOREGROUND,
        };
        let y = MARGIN + (number - 1) * HEIGHT + 14;
        let _ = writeln!(
            drawn,
            "<text x=\"{MARGIN}\" y=\"{y}\" xml:space=\"preserve\" fill=\"{fill}\">{}</text>",
            escaped(&line)
        );
    }
    let total = (at + END).as_secs_f32();
    let mut keyframes = |name: &str, offset: &dyn Fn(u16) -> f32| {
        let _ = write!(svg, "<style>@keyframes {name}{{");
        for (time, number) in [(Duration::ZERO, 0)].iter().chain(&moves) {
            let percent = 100.0 * time.as_secs_f32() / total;
            let offset = offset(*number);
            let _ = write!(svg, "{percent:.2}%{{transform:translateY({offset}px)}}");
        }
        let _ = writeln!(
            svg,
            "}}.{name}{{animation:{name} {total:.1}s step-end infinite}}</style>"
        );
    };
    let scrolled = |number: u16| -f32::from(number.saturating_sub(rows)) * height;
    keyframes("scroll", &scrolled);
    keyframes("cover", &|number| f32::from(number) * height);
    let inside = rows * HEIGHT;
    let below = (u16::try_from(lines.len()).unwrap_or(u16::MAX)).saturating_mul(HEIGHT) + inside;
    let _ = write!(
        svg,
        "<clipPath id=\"screen\"><rect x=\"0\" y=\"{MARGIN}\" width=\"100%\" height=\"{inside}\"/></clipPath>\n\
         <g clip-path=\"url(#screen)\"><g class=\"scroll\">\n{drawn}\
         <rect class=\"cover\" x=\"0\" y=\"{MARGIN}\" width=\"100%\" height=\"{below}\" fill=\"{BACKGROUND}\"/>\n</g></g>\n</svg>\n"
    );
    svg
}

/// The words of a picture, without those that vary: ages, the pod's name, and the cluster's network.
pub fn words(svg: &str) -> Vec<String> {
    let text: Vec<&str> = svg
        .split('<')
        .filter_map(|element| element.strip_prefix("text ")?.split_once('>'))
        .map(|(_, text)| text)
        .collect();
    let steady = |word: &str| {
        let number = word.strip_suffix('s').unwrap_or_default();
        let is_age = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        if is_age {
            "AGE".to_owned()
        } else if word.contains("globalps-controller") {
            "CONTROLLER".to_owned()
        } else {
            word.to_owned()
        }
    };
    text.join(" ").split_whitespace().map(steady).collect()
}

fn is_inked(screen: &Screen, row: u16, column: u16) -> bool {
    let cell = screen.cell(row, column);
    cell.is_some_and(|cell| !cell.contents().trim().is_empty())
}

/// Neighbouring cells of the same style: first column, style attributes, text. Without trailing blanks.
fn runs(screen: &Screen, row: u16, columns: u16) -> Vec<(u16, String, String)> {
    let mut runs: Vec<(u16, String, String)> = Vec::new();
    let end = (0..columns)
        .rev()
        .find(|column| is_inked(screen, row, *column));
    for column in 0..end.map_or(0, |end| end + 1) {
        let Some(cell) = screen.cell(row, column) else {
            continue;
        };
        let style = style(cell);
        let text = match cell.contents() {
            "" => " ",
            text => text,
        };
        match runs.last_mut() {
            Some((_, last, run)) if *last == style => run.push_str(text),
            _ => runs.push((column, style, text.to_owned())),
        }
    }
    runs
}

fn style(cell: &Cell) -> String {
    let colour = match cell.fgcolor() {
        Color::Idx(index) => PALETTE
            .get(usize::from(index))
            .copied()
            .unwrap_or(FOREGROUND)
            .to_owned(),
        Color::Rgb(red, green, blue) => format!("#{red:02x}{green:02x}{blue:02x}"),
        Color::Default => FOREGROUND.to_owned(),
    };
    let bold = if cell.bold() {
        " font-weight=\"bold\""
    } else {
        ""
    };
    let dim = if cell.dim() { " opacity=\"0.6\"" } else { "" };
    format!(" fill=\"{colour}\"{bold}{dim}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_pictures_say_the_same_at_different_times() {
        let picture = |text: &str| words(&svg(text, 60));
        let first =
            picture("node-1  \x1b[32mSynced\x1b[0m  3s\r\n`globalps-controller-7b-x_1a` leads");
        let second =
            picture("node-1  \x1b[32mSynced\x1b[0m  12s\r\n`globalps-controller-9c-y_2b` leads");
        assert_eq!(first, second);
        assert_eq!(first, ["node-1", "Synced", "AGE", "CONTROLLER", "leads"]);
        let third =
            picture("node-1  \x1b[33mSyncing\x1b[0m  3s\r\n`globalps-controller-7b-x_1a` leads");
        assert_ne!(first, third);
    }

    #[test]
    fn a_recording_shows_each_line_at_its_time_and_scrolls() {
        let line = |seconds, text: &str| (Duration::from_secs(seconds), text.to_owned());
        let lines = [line(1, "==> first"), line(2, "<2>"), line(60, "third line")];
        let svg = recording(&lines, 8, 2);
        // One second, another one, at most 1.5 s more, and 6 s at the end.
        assert!(
            svg.contains("animation:scroll 9.5s step-end infinite"),
            "{svg}"
        );
        assert!(
            svg.contains("36.84%{transform:translateY(-19px)}"),
            "the third line scrolls by one: {svg}"
        );
        assert!(svg.contains("10.53%{transform:translateY(19px)}"), "{svg}");
        for text in [
            ">==&gt; firs</text>",
            ">&lt;2&gt;</text>",
            ">third li</text>",
        ] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
    }

    #[test]
    fn what_was_shown_is_in_the_picture_in_its_colours() {
        let picture = svg(
            "a <b>\r\n\x1b[31mred\x1b[0m & \x1b[1mbold\x1b[0m\r\ngone\r\x1b[K",
            20,
        );
        assert!(picture.contains(">a &lt;b&gt;</text>"), "{picture}");
        assert!(picture.contains("fill=\"#e06c75\">red</text>"), "{picture}");
        assert!(
            picture.contains("font-weight=\"bold\">bold</text>"),
            "{picture}"
        );
        assert!(!picture.contains("gone"), "erased text is absent");
        let height = 2 * HEIGHT + 2 * MARGIN;
        assert!(picture.contains(&format!("0 0 196 {height}")), "{picture}");
    }
}
