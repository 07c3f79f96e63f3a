//! Draws a Grafana dashboard as SVG, from the answers to its own queries: stats, time series and tables. Pure, and no
//! Grafana: sizes, units, thresholds, stacking and legends are the dashboard's, fonts and colours are not.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, anyhow};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde::Deserialize;
use serde_json::Value;

use globalps_testkit::prometheus::Series;

/// Pixels of a column and a row of Grafana's grid.
const CELL: (u32, u32) = (50, 32);
const GAP: u32 = 4;
const PAGE: RGBColor = RGBColor(17, 18, 23);
const PANEL: RGBColor = RGBColor(24, 27, 31);
const LINE: RGBColor = RGBColor(44, 48, 54);
const TEXT: RGBColor = RGBColor(204, 204, 220);
const GREEN: RGBColor = RGBColor(115, 191, 105);
/// Grafana's colours, in the order in which series without a colour of their own get them.
const COLORS: [(&str, RGBColor); 8] = [
    ("green", GREEN),
    ("yellow", RGBColor(242, 204, 12)),
    ("blue", RGBColor(87, 148, 242)),
    ("orange", RGBColor(255, 152, 48)),
    ("red", RGBColor(242, 73, 92)),
    ("purple", RGBColor(184, 119, 217)),
    ("light-blue", RGBColor(138, 184, 255)),
    ("light-purple", RGBColor(202, 149, 229)),
];

/// A panel, as it is in the dashboard's file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Panel {
    pub title: String,
    #[serde(rename = "type")]
    pub kind: String,
    grid_pos: Grid,
    pub targets: Vec<Target>,
    field_config: Value,
    #[serde(default)]
    options: Value,
}

#[derive(Debug, Deserialize)]
struct Grid {
    x: u32,
    y: u32,
    w: u32,
    h: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    expr: String,
    #[serde(default)]
    legend_format: String,
}

impl Target {
    /// The query with Grafana's variables replaced. `range`: seconds of the whole picture.
    pub fn query(&self, range: u64) -> String {
        // Grafana takes at least four scrape intervals.
        self.expr
            .replace("$__rate_interval", "5s")
            .replace("$__range", &format!("{range}s"))
    }

    /// The legend of a series.
    fn legend(&self, series: &Series) -> String {
        let mut legend = self.legend_format.clone();
        for (name, value) in &series.metric {
            legend = legend.replace(&format!("{{{{{name}}}}}"), value);
        }
        legend
    }
}

/// The panels in the text of a dashboard.
pub fn panels(dashboard: &str) -> Result<Vec<Panel>> {
    let mut dashboard: Value = serde_json::from_str(dashboard)?;
    Ok(serde_json::from_value(dashboard["panels"].take())?)
}

/// A panel with the answers to its queries, in their order.
pub type Answered = (Panel, Vec<Vec<Series>>);

/// The whole dashboard. `range`: the times of its beginning and end, in seconds since 1970.
pub fn svg(panels: &[Answered], range: (f64, f64)) -> Result<String> {
    let ends = panels.iter().map(|(panel, _)| {
        let grid = &panel.grid_pos;
        (grid.x + grid.w, grid.y + grid.h)
    });
    let (columns, rows) = ends.fold((0, 0), |most, end| (most.0.max(end.0), most.1.max(end.1)));
    let mut text = String::new();
    {
        let size = (columns * CELL.0 + GAP, rows * CELL.1 + GAP);
        let page = SVGBackend::with_string(&mut text, size).into_drawing_area();
        page.fill(&PAGE).map_err(failed)?;
        for (panel, answers) in panels {
            let grid = &panel.grid_pos;
            let at = (grid.x * CELL.0 + GAP, grid.y * CELL.1 + GAP);
            let size = (grid.w * CELL.0 - GAP, grid.h * CELL.1 - GAP);
            let area = page.clone().shrink(at, size);
            area.fill(&PANEL).map_err(failed)?;
            let title = font(14).color(&TEXT);
            area.draw_text(&panel.title, &title, (10, 8))
                .map_err(failed)?;
            let drawn = match panel.kind.as_str() {
                "stat" => panel.stat(&area, answers),
                "table" => table(&area, answers),
                _ => panel.chart(&area, answers, range),
            };
            drawn.with_context(|| format!("panel `{}`", panel.title))?;
        }
        page.present().map_err(failed)?;
    }
    Ok(text)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("{error}")
}

fn font(size: u32) -> FontDesc<'static> {
    ("sans-serif", size).into_font()
}

/// A value with its unit, as Grafana names units.
fn shown(value: f64, unit: &str) -> String {
    let number = match value {
        value if value.fract() == 0.0 => format!("{value:.0}"),
        value if value.abs() < 10.0 => format!("{value:.2}"),
        value => format!("{value:.1}"),
    };
    match unit {
        "percentunit" => format!("{:.0}%", value * 100.0),
        "s" => format!("{number} s"),
        "ops" => format!("{number} ops/s"),
        "reqps" => format!("{number} req/s"),
        _ => number,
    }
}

impl Panel {
    fn unit(&self) -> &str {
        let unit = &self.field_config["defaults"]["unit"];
        unit.as_str().unwrap_or_default()
    }

    /// Colour of a value: that of the highest threshold below it.
    fn color(&self, value: f64) -> RGBColor {
        let steps = &self.field_config["defaults"]["thresholds"]["steps"];
        let steps = steps.as_array().map(Vec::as_slice).unwrap_or_default();
        let reached = steps
            .iter()
            .rfind(|step| step["value"].as_f64().is_none_or(|least| value >= least));
        named(&reached.unwrap_or(&Value::Null)["color"]).unwrap_or(GREEN)
    }

    /// Colour of the series with this legend, which is the panel's `number`th.
    fn color_of(&self, legend: &str, number: usize) -> RGBColor {
        let overrides = self.field_config["overrides"].as_array();
        let own = overrides.and_then(|all| {
            all.iter()
                .find(|one| one["matcher"]["options"] == legend)
                .and_then(|one| named(&one["properties"][0]["value"]["fixedColor"]))
        });
        own.unwrap_or(COLORS[number % COLORS.len()].1)
    }

    fn stat(&self, area: &Area<'_>, answers: &[Vec<Series>]) -> Result<()> {
        let (width, height) = area.dim_in_pixel();
        let first = answers.first().and_then(|series| series.first());
        let last = first.and_then(|series| Some((series, series.values.last()?.1)));
        let (text, color) = match last {
            None => ("No data".to_owned(), TEXT),
            Some((series, _)) if self.options["textMode"] == "name" => {
                (self.targets[0].legend(series), GREEN)
            }
            Some((_, value)) => (shown(value, self.unit()), self.color(value)),
        };
        let size = if text.len() > 8 { 11 } else { 40 };
        let style = font(size)
            .color(&color)
            .pos(Pos::new(HPos::Center, VPos::Center));
        let middle = (i32::try_from(width)? / 2, i32::try_from(height)? / 2 + 10);
        area.draw_text(&text, &style, middle).map_err(failed)
    }

    fn chart(
        &self,
        area: &Area<'_>,
        answers: &[Vec<Series>],
        (start, end): (f64, f64),
    ) -> Result<()> {
        let custom = &self.field_config["defaults"]["custom"];
        let is_stacked = custom["stacking"]["mode"] == "normal";
        let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
        for (target, series) in self.targets.iter().zip(answers) {
            for series in series {
                let values = series.values.iter().copied();
                let values: Vec<_> = values.filter(|(_, value)| value.is_finite()).collect();
                if !values.is_empty() {
                    lines.push((target.legend(series), values));
                }
            }
        }
        if lines.is_empty() {
            let style = font(14).color(&TEXT);
            return area.draw_text("No data", &style, (10, 40)).map_err(failed);
        }
        if is_stacked {
            stack(&mut lines);
        }
        for (_, line) in &mut lines {
            let is_stepped = custom["lineInterpolation"] == "stepAfter";
            for at in (1..line.len()).rev().filter(|_| is_stepped) {
                line.insert(at, (line[at].0, line[at - 1].1));
            }
        }
        let values = lines
            .iter()
            .flat_map(|(_, line)| line.iter().map(|(_, value)| *value));
        let most = values.fold(0.0, f64::max) * 1.1;
        let most = if most > 0.0 { most } else { 1.0 };
        let (width, height) = area.dim_in_pixel();
        let mut chart = ChartBuilder::on(area)
            .margin_top(32)
            .margin_right(14)
            .margin_bottom(26)
            .x_label_area_size(22)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..end - start, 0.0..most)
            .map_err(failed)?;
        let unit = self.unit();
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(LINE)
            .axis_style(LINE)
            .label_style(font(11).color(&TEXT))
            .y_labels(usize::try_from(height / 60)?)
            .x_label_formatter(&|seconds| format!("{seconds:.0} s"))
            .y_label_formatter(&|value| shown((value * 1e3).round() / 1e3, unit))
            .draw()
            .map_err(failed)?;
        let mut left = 12;
        // A stacked line covers those below it, so the highest is drawn first.
        for (number, (legend, line)) in lines.iter().enumerate().rev() {
            let color = self.color_of(legend, number);
            let points = line.iter().map(|(time, value)| (time - start, *value));
            if is_stacked {
                let area = AreaSeries::new(points, 0.0, mixed(color));
                chart
                    .draw_series(area.border_style(color))
                    .map_err(failed)?;
            } else {
                let line = LineSeries::new(points, color.stroke_width(2));
                chart.draw_series(line).map_err(failed)?;
            }
        }
        let bottom = i32::try_from(height)? - 18;
        for (number, (legend, _)) in lines.iter().enumerate() {
            // Grafana scrolls here.
            if left + 40 + 7 * i32::try_from(legend.len())? > i32::try_from(width)? {
                let style = font(12).color(&TEXT);
                area.draw_text("…", &style, (left, bottom))
                    .map_err(failed)?;
                break;
            }
            let color = self.color_of(legend, number);
            let mark = Rectangle::new(
                [(left, bottom + 4), (left + 14, bottom + 7)],
                color.filled(),
            );
            area.draw(&mark).map_err(failed)?;
            let style = font(12).color(&TEXT);
            area.draw_text(legend, &style, (left + 19, bottom))
                .map_err(failed)?;
            left += 40 + 7 * i32::try_from(legend.len())?;
        }
        Ok(())
    }
}

fn named(color: &Value) -> Option<RGBColor> {
    let found = COLORS.iter().find(|(name, _)| color == name);
    found.map(|(_, color)| *color)
}

/// The colour at the panel's 40 percent: a transparent one would show the areas below.
fn mixed(color: RGBColor) -> RGBColor {
    let mix = |own: u8, under: u8| {
        let mixed = (u32::from(own) * 2 + u32::from(under) * 3) / 5;
        u8::try_from(mixed).unwrap_or(u8::MAX)
    };
    RGBColor(
        mix(color.0, PANEL.0),
        mix(color.1, PANEL.1),
        mix(color.2, PANEL.2),
    )
}

/// Adds to each value those of the lines before it at the same time.
fn stack(lines: &mut [(String, Vec<(f64, f64)>)]) {
    let mut below: BTreeMap<u64, f64> = BTreeMap::new();
    for (_, line) in lines {
        for (time, value) in line {
            let sum = below.entry(time.to_bits()).or_default();
            *sum += *value;
            *value = *sum;
        }
    }
}

/// Labels as columns, a series a row.
fn table(area: &Area<'_>, answers: &[Vec<Series>]) -> Result<()> {
    let rows = answers.first().map(Vec::as_slice).unwrap_or_default();
    let first = rows.first().context("no series")?;
    let columns: Vec<&String> = first
        .metric
        .keys()
        .filter(|name| *name != "__name__")
        .collect();
    let (width, _) = area.dim_in_pixel();
    let step = i32::try_from(width)? / i32::try_from(columns.len().max(1))?;
    for (number, column) in (0..).zip(columns) {
        let bold = font(12).style(FontStyle::Bold).color(&TEXT);
        area.draw_text(column, &bold, (10 + number * step, 40))
            .map_err(failed)?;
        for (line, row) in (0..).zip(rows) {
            let text = row
                .metric
                .get(column)
                .map(String::as_str)
                .unwrap_or_default();
            let at = (10 + number * step, 64 + line * 22);
            area.draw_text(text, &font(12).color(&TEXT), at)
                .map_err(failed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(kind: &str, more: Value) -> Panel {
        let mut panel = serde_json::json!({
            "title": "T", "type": kind, "gridPos": {"x": 0, "y": 0, "w": 4, "h": 4},
            "targets": [{"expr": "a[$__range] b[$__rate_interval]", "legendFormat": "{{pod}}"}],
            "fieldConfig": {
                "defaults": {"unit": "percentunit", "thresholds": {"steps": [
                    {"color": "orange", "value": null}, {"color": "green", "value": 1},
                ]}},
                "overrides": [{
                    "matcher": {"id": "byName", "options": "Failed"},
                    "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": "red"}}],
                }],
            },
        });
        panel["options"] = more;
        serde_json::from_value(panel).unwrap()
    }

    fn series(pod: &str, values: &[(f64, f64)]) -> Series {
        Series {
            metric: [("pod".to_owned(), pod.to_owned())].into(),
            values: values.to_vec(),
        }
    }

    #[test]
    fn a_stat_shows_its_last_value_its_name_or_that_it_has_none() {
        #[rustfmt::skip]
        let cases = [
            (Value::Null, vec![series("p", &[(1.0, 1.0), (2.0, 0.5)])], "50%"),
            (serde_json::json!({"textMode": "name"}), vec![series("pod-1", &[(1.0, 1.0)])], "pod-1"),
            (Value::Null, vec![], "No data"),
        ];
        for (options, answer, expected) in cases {
            let drawn = svg(&[(panel("stat", options), vec![answer])], (0.0, 9.0)).unwrap();
            assert!(drawn.contains(&format!("{expected}\n")), "{drawn}");
        }
    }

    #[test]
    fn colours_follow_thresholds_and_queries_have_no_variables() {
        let panel = panel("stat", Value::Null);
        assert_eq!((panel.color(0.5), panel.color(1.0)), (COLORS[3].1, GREEN));
        assert_eq!(
            (panel.color_of("Failed", 0), panel.color_of("x", 1)),
            (COLORS[4].1, COLORS[1].1)
        );
        assert_eq!(panel.targets[0].query(60), "a[60s] b[5s]");
    }

    #[test]
    fn stacked_values_are_sums_of_the_same_time() {
        let mut lines = vec![
            ("a".to_owned(), vec![(1.0, 1.0), (2.0, 2.0)]),
            ("b".to_owned(), vec![(2.0, 3.0)]),
        ];
        stack(&mut lines);
        assert_eq!(lines[1].1, [(2.0, 5.0)]);
    }
}
