//! Fits a straight line through points by least squares.

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    pub slope: f64,
    pub at_zero: f64,
    /// Coefficient of determination; 1: every point is on the line.
    pub r2: f64,
}

/// Points as (x, y), with at least two different x.
pub fn line(points: &[(f64, f64)]) -> Line {
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let number = points.len() as f64;
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / number;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / number;
    let over = |f: &dyn Fn(f64, f64) -> f64| -> f64 {
        points.iter().map(|(x, y)| f(x - mean_x, y - mean_y)).sum()
    };
    let slope = over(&|x, y| x * y) / over(&|x, _| x * x);
    let (left, total) = (over(&|x, y| (y - slope * x).powi(2)), over(&|_, y| y * y));
    Line {
        slope,
        at_zero: mean_y - slope * mean_x,
        r2: if total == 0.0 {
            1.0
        } else {
            1.0 - left / total
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_on_a_line_fit_it_and_points_on_a_curve_do_less() {
        let straight = line(&[(100.0, 12.0), (1000.0, 30.0), (5000.0, 110.0)]);
        assert!((straight.slope - 0.02).abs() < 1e-9);
        assert!((straight.at_zero - 10.0).abs() < 1e-9);
        assert!((straight.r2 - 1.0).abs() < 1e-9);
        let square = line(&[(0.0, 0.0), (1.0, 1.0), (4.0, 16.0)]);
        assert!(square.r2 < 0.99 && square.r2 > 0.5);
    }
}
