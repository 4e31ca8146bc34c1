//! The layout in which Foxglove and Lichtblick show views: panels, and what is switched on in them.
//! Knows no events.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::convert::BASE;

/// A channel of views.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ViewTopic {
    pub(crate) topic: String,
    /// The type without its package.
    pub(crate) kind: String,
}

/// Panels with a picture each.
const MAX_IMAGES: usize = 4;
/// How many percent of the window the view in space takes.
const SPACE_PERCENT: u32 = 65;

/// The layout for these channels, as JSON.
pub(crate) fn layout(views: &BTreeSet<ViewTopic>) -> Value {
    let of_kind = |kinds: &'static [&str]| {
        views.iter().filter(|view| kinds.contains(&view.kind.as_str())).map(|view| &*view.topic)
    };
    let topics: BTreeSet<&str> = views.iter().map(|view| view.topic.as_str()).collect();
    let mut panels = Map::new();
    let mut column = Vec::new();
    for (at, topic) in of_kind(&["CompressedImage", "RawImage"]).take(MAX_IMAGES).enumerate() {
        let mut mode = json!({ "imageTopic": topic });
        let calibration = format!("{topic}/calibration");
        if topics.contains(calibration.as_str()) {
            mode["calibrationTopic"] = calibration.into();
        }
        column.push(format!("Image!view{at}"));
        panels.insert(format!("Image!view{at}"), json!({ "imageMode": mode }));
    }
    let fixes: Vec<&str> = of_kind(&["LocationFix"]).collect();
    if let Some(first) = fixes.first() {
        column.push("map!view".to_owned());
        let map = json!({ "layer": "map", "followTopic": first, "zoomLevel": 17 });
        panels.insert("map!view".to_owned(), map);
    }
    panels.insert("3D!view".to_owned(), space(views, &topics));
    let window = match stacked(&column) {
        None => json!("3D!view"),
        Some(column) => json!({
            "direction": "row", "first": "3D!view", "second": column,
            "splitPercentage": SPACE_PERCENT,
        }),
    };
    json!({
        "configById": panels,
        "globalVariables": {},
        "userNodes": {},
        "playbackConfig": { "speed": 1 },
        "layout": window,
    })
}

/// The panel of everything in space, as seen from behind the vehicle.
fn space(views: &BTreeSet<ViewTopic>, topics: &BTreeSet<&str>) -> Value {
    let mut shown = Map::new();
    for view in views {
        let settings = match view.kind.as_str() {
            // A scan that is points as well is shown once.
            "LaserScan" => {
                let has_points = topics.contains(format!("{}/points", view.topic).as_str());
                json!({ "visible": !has_points })
            }
            "PointCloud" => json!({
                "visible": true, "colorField": "z", "colorMode": "colormap", "colorMap": "turbo",
                "pointSize": 2,
            }),
            "PoseInFrame" => json!({ "visible": false }),
            _ => continue,
        };
        shown.insert(view.topic.clone(), settings);
    }
    json!({
        "followMode": "follow-pose",
        "followTf": BASE,
        "cameraState": {
            "perspective": true, "distance": 60, "phi": 60, "thetaOffset": 90,
            "targetOffset": [0, 0, 0], "target": [0, 0, 0],
            "targetOrientation": [0, 0, 0, 1], "fovy": 45, "near": 0.5, "far": 5000,
        },
        "layers": { "grid": {
            "layerId": "foxglove.Grid", "instanceId": "grid", "visible": true, "size": 100,
            "divisions": 20, "lineWidth": 1, "color": "#248eff44",
        } },
        "topics": shown,
    })
}

/// Panels above each other.
fn stacked(panels: &[String]) -> Option<Value> {
    let (first, rest) = panels.split_first()?;
    let Some(rest) = stacked(rest) else { return Some(json!(first)) };
    let percent = 100 / panels.len();
    Some(json!({
        "direction": "column", "first": first, "second": rest, "splitPercentage": percent,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn views(all: &[(&str, &str)]) -> BTreeSet<ViewTopic> {
        let view = |(topic, kind): &(&str, &str)| ViewTopic {
            topic: (*topic).to_owned(),
            kind: (*kind).to_owned(),
        };
        all.iter().map(view).collect()
    }

    #[test]
    fn every_kind_of_view_has_its_panel() {
        let layout = layout(&views(&[
            ("/gps", "LocationFix"),
            ("/tf", "FrameTransforms"),
            ("/view/CAM", "CompressedImage"),
            ("/view/CAM/calibration", "CameraCalibration"),
            ("/view/SICK", "LaserScan"),
            ("/view/SICK/points", "PointCloud"),
        ]));
        let panels = &layout["configById"];
        let image =
            json!({ "imageTopic": "/view/CAM", "calibrationTopic": "/view/CAM/calibration" });
        assert_eq!(panels["Image!view0"]["imageMode"], image);
        assert_eq!(panels["map!view"]["followTopic"], "/gps");
        let topics = &panels["3D!view"]["topics"];
        assert_eq!(topics["/view/SICK"]["visible"], false);
        assert_eq!(topics["/view/SICK/points"]["visible"], true);
        assert_eq!(layout["layout"]["second"]["second"], "map!view");
    }

    #[test]
    fn without_pictures_and_positions_there_is_one_panel() {
        assert_eq!(layout(&views(&[("/tf", "FrameTransforms")]))["layout"], "3D!view");
        assert_eq!(layout(&views(&[]))["layout"], "3D!view");
    }
}
