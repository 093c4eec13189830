//! The page's style sheet: one column, calm, both colour schemes.

use crate::figure::style::{DARK, LIGHT, Palette, css};

const LAYOUT: &str = "
*{box-sizing:border-box}
body{margin:0;font:15px/1.55 system-ui,-apple-system,'Segoe UI',Roboto,'Liberation Sans',sans-serif}
main{max-width:1120px;margin:0 auto;padding:40px 28px 80px}
h1{font-size:26px;line-height:1.25;margin:0 0 12px}
h2{font-size:21px;margin:56px 0 4px}
h3{font-size:16px;margin:34px 0 8px}
h4{font-size:14px;margin:16px 0 4px}
p{margin:8px 0;max-width:80ch}
.lead{font-size:17px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
th,td{padding:5px 10px;text-align:left;vertical-align:baseline;border-bottom:1px solid}
th{font-weight:600}
td.number,th.number{text-align:right;white-space:nowrap}
small{font-size:12px}
td.verdict{white-space:nowrap}
tr.first-other td{border-top:2px solid}
table.facts td:first-child{white-space:nowrap;width:1%}
.figures{display:grid;grid-template-columns:minmax(0,1fr);gap:30px;margin-top:20px}
figure{margin:0;max-width:860px}
figure svg{display:block;width:100%;height:auto}
figure h4{font-size:14px;margin:0 0 4px}
figcaption{font-size:12.5px;max-width:95ch}
pre{padding:12px 14px;overflow-x:auto;font-size:13px;border-radius:6px;border:1px solid}
details{margin:14px 0}
summary{cursor:pointer;font-weight:600}
dt{font-weight:600;margin-top:10px}
dd{margin:0 0 0 18px}
ul{padding-left:20px;margin:8px 0}
.bar{display:inline-block;height:9px}
nav>ul>li>a{font-weight:600}nav details{margin:2px 0}nav summary{font-weight:400}
@media(max-width:640px){main{padding:20px 14px 48px}h1{font-size:22px}.lead{font-size:16px}figure svg{min-width:620px}}
@media print{main{max-width:none;padding:0}details>*{display:block}figure,tr{break-inside:avoid}}
";

/// The whole sheet.
pub fn sheet() -> String {
    format!(
        "{LAYOUT}{}@media(prefers-color-scheme:dark){{:root{{color-scheme:dark}}{}}}",
        scheme(&LIGHT),
        scheme(&DARK)
    )
}

fn scheme(palette: &Palette) -> String {
    let Palette { back, ink, muted, line, series } = palette;
    let (agrees, differs) = (series[2], series[1]);
    format!(
        "body{{background:{back};color:{ink}}}th,td,pre{{border-color:{line}}}tr.first-other td{{border-top-color:{line}}}\
         small,figcaption,.muted,table.facts td:first-child{{color:{muted}}}a{{color:{}}}\
         .agrees{{color:{agrees}}}.differs{{color:{differs}}}.bar{{background:{}}}{}",
        series[0],
        series[0],
        css(palette)
    )
}
