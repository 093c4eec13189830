//! Colours of figures and page, in a light and a dark scheme. Series colours are from Okabe and Ito's palette
//! ("Color Universal Design", 2008), which people with the common colour-vision deficiencies can tell apart, its
//! lighter ones on dark; later series are also dashed.

use std::fmt::Write;

/// Number of series with a look of their own; further ones start over.
pub const SERIES: usize = 6;

/// One colour scheme.
#[derive(Clone, Copy, Debug)]
pub struct Palette {
    /// Background.
    pub back: &'static str,
    /// Text.
    pub ink: &'static str,
    /// Secondary text.
    pub muted: &'static str,
    /// Grid and borders.
    pub line: &'static str,
    /// One for each series, the baseline first.
    pub series: [&'static str; SERIES],
}

/// Dark on white.
pub const LIGHT: Palette = Palette {
    back: "#ffffff",
    ink: "#1f2328",
    muted: "#59636e",
    line: "#d8dee4",
    series: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"],
};

/// Light on near black.
pub const DARK: Palette = Palette {
    back: "#15181c",
    ink: "#e6e9ec",
    muted: "#9da7b1",
    line: "#363d45",
    series: ["#56b4e9", "#e69f00", "#00b488", "#cc79a7", "#f0e442", "#8fa8ff"],
};

const DASHES: [&str; SERIES] = ["none", "none", "6 3", "2 3", "8 3 2 3", "4 2"];

/// Rules for elements of class `figure`.
pub fn css(palette: &Palette) -> String {
    let Palette { back, ink, muted, line, series } = palette;
    let mut css = format!(
        ".figure text{{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'Liberation Sans',sans-serif;fill:{ink}}}\
         .figure .muted{{fill:{muted}}}.figure .back{{fill:{back}}}.figure .grid{{stroke:{line};stroke-width:1}}\
         .figure .base{{stroke:{muted};stroke-width:1}}.figure .curve{{fill:none;stroke-width:1.6;stroke-linejoin:round}}\
         .figure .stems{{fill:none;stroke-width:1.2}}.figure .whisker{{stroke-width:2;fill:none}}\
         .figure .reference{{fill:none;stroke:{ink};stroke-width:1.5}}"
    );
    for (index, (colour, dash)) in series.iter().zip(DASHES).enumerate() {
        let _ = write!(
            css,
            ".figure .s{index}{{stroke:{colour}}}.figure .curve.s{index}{{stroke-dasharray:{dash}}}.figure .d{index}{{fill:{colour}}}"
        );
    }
    css
}
