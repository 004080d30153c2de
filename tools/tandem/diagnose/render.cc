// Renders a report as JSON, as text for a terminal, and as a page with plots.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/text/count.h"
#include "tools/tandem/diagnose/render_links.h"
#include "tools/tandem/diagnose/report.h"

namespace tandem::diagnose {
namespace {

using nlohmann::json;

constexpr size_t kUnitsShown = 12;

json Of(const Distribution& d) {
  return {{"count", d.count}, {"mean", d.mean}, {"p50", d.p50}, {"p95", d.p95}, {"max", d.max}};
}

double Share(double part, double whole) { return whole > 0 ? part / whole : 0; }

// A bar of so many characters for a share of 1.
std::string Bar(double share, int width = 30) {
  const int filled = static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * width));
  return std::string(filled, '#') + std::string(width - filled, '.');
}

std::string Escape(const std::string& text) { return EscapeHtml(text); }

// ---- the page's parts -------------------------------------------------------------------------

struct Segment {
  std::string name;
  double seconds = 0;
  const char* colour = "";
};

// One stacked bar for each row, on a common scale.
std::string StackedBars(const std::vector<std::pair<std::string, std::vector<Segment>>>& rows) {
  double longest = 0;
  for (const auto& [label, segments] : rows) {
    double sum = 0;
    for (const Segment& segment : segments) sum += segment.seconds;
    longest = std::max(longest, sum);
  }
  if (longest <= 0) return "";
  std::string out = absl::StrFormat("<svg viewBox=\"0 0 900 %d\" role=\"img\">", 26 * rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    absl::StrAppendFormat(&out, "<text x=\"0\" y=\"%d\">%s</text>", 26 * i + 17,
                          Escape(rows[i].first));
    double x = 190;
    for (const Segment& segment : rows[i].second) {
      const double width = segment.seconds / longest * 640;
      absl::StrAppendFormat(&out,
                            "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"18\" fill=\"%s\">"
                            "<title>%s: %.4f s</title></rect>",
                            x, 26 * i + 4, width, segment.colour, Escape(segment.name),
                            segment.seconds);
      x += width;
    }
    absl::StrAppendFormat(&out, "<text x=\"%.1f\" y=\"%d\">%.3f s</text>", x + 6, 26 * i + 17,
                          (x - 190) / 640 * longest);
  }
  return out + "</svg>";
}

std::string Legend(const std::vector<Segment>& kinds) {
  std::string out = "<p class=\"legend\">";
  for (const Segment& kind : kinds) {
    absl::StrAppendFormat(&out, "<span><i style=\"background:%s\"></i>%s</span>", kind.colour,
                          Escape(kind.name));
  }
  return out + "</p>";
}

std::string MemoryPlot(const std::vector<MemoryPoint>& points) {
  if (points.size() < 2) return "";
  double most = 0;
  for (const MemoryPoint& point : points) most = std::max(most, point.peak_rss_bytes);
  const double first = static_cast<double>(points.front().step);
  const double span = std::max(1.0, static_cast<double>(points.back().step) - first);
  const auto line = [&](double MemoryPoint::*of, const char* colour) {
    std::string path;
    for (const MemoryPoint& point : points) {
      absl::StrAppendFormat(&path, "%s%.1f %.1f", path.empty() ? "M" : "L",
                            60 + (static_cast<double>(point.step) - first) / span * 820,
                            160 - point.*of / most * 150);
    }
    return absl::StrFormat("<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>", path,
                           colour);
  };
  return absl::StrFormat(
             "<svg viewBox=\"0 0 900 185\" role=\"img\"><text x=\"0\" y=\"16\">%.2f GiB</text>"
             "<text x=\"0\" y=\"164\">0</text><text x=\"60\" y=\"180\">step %d</text>"
             "<text x=\"840\" y=\"180\">%d</text>",
             most / (1 << 30), points.front().step, points.back().step) +
         line(&MemoryPoint::peak_rss_bytes, "#2f6fde") +
         line(&MemoryPoint::peak_tensor_bytes, "#e69f00") + "</svg>";
}

constexpr char kStyle[] =
    ":root{color-scheme:light dark}body{font:14px/1.5 "
    "system-ui,sans-serif;max-width:60rem;margin:2rem "
    "auto;padding:0 1rem}svg{width:100%}svg text{font-size:12px;fill:currentColor}li{margin:.4rem "
    "0}.legend span{margin-right:1rem}.legend i{display:inline-block;width:.8rem;height:.8rem;"
    "margin-right:.3rem;border-radius:2px}table{border-collapse:collapse}td,th{padding:.15rem "
    ".8rem .15rem "
    "0;text-align:right}td:first-child,th:first-child{text-align:left}.wide{overflow-x:auto}"
    "table.links{border-spacing:3px;border-collapse:separate}table.links th{font-weight:500}"
    "table.links td.heat{padding:.25rem .6rem;border-radius:4px;text-align:right}"
    "td.heat small{display:block;opacity:.8;font-size:10px}";

// "testing, 4 of 40" for a phase that 4 of 40 steps have.
std::string PhaseLabel(const std::string& phase, const Distribution& times, int64_t num_steps) {
  if (times.count == num_steps) return phase;
  return absl::StrCat(phase, ", ", times.count, " of ", num_steps);
}

const std::vector<Segment>& RankKinds() {
  static const auto* kinds = new std::vector<Segment>{{"computation", 0, "#2a9d5c"},
                                                      {"all-gather, exposed", 0, "#d1495b"},
                                                      {"reduce-scatter, exposed", 0, "#e69f00"},
                                                      {"wait for the norm", 0, "#cc79a7"},
                                                      {"other", 0, "#8888"}};
  return *kinds;
}

std::vector<Segment> SegmentsOf(const RankTimes& times) {
  std::vector<Segment> out = RankKinds();
  const double seconds[] = {times.compute, times.all_gather, times.reduce_scatter, times.norm_wait,
                            times.other};
  for (size_t i = 0; i < out.size(); ++i) out[i].seconds = seconds[i];
  return out;
}

}  // namespace

json ToJson(const Report& report) {
  json out = {{"run", report.run},
              {"steps", report.num_steps},
              {"step_seconds", Of(report.step)},
              {"update_seconds", Of(report.update)},
              {"update_pause_seconds", Of(report.update_pause)},
              {"has_trace", report.has_trace},
              {"driver_phases", json::object()},
              {"update_phases", json::object()},
              {"ranks", json::array()},
              {"units", json::array()},
              {"links", LinksToJson(report)},
              {"memory", json::array()},
              {"nccl_transports", report.nccl_transports},
              {"advice", json::array()}};
  for (const auto& [phase, times] : report.driver_phases) {
    out["driver_phases"][phase] = Of(times);
    out["driver_phases"][phase]["seconds_per_step"] = report.PerStep(times);
  }
  for (const auto& [phase, times] : report.update_phases) out["update_phases"][phase] = Of(times);
  for (const RankTimes& t : report.ranks) {
    out["ranks"].push_back({{"rank", t.rank},
                            {"step_seconds", t.step},
                            {"compute_seconds", t.compute},
                            {"exposed_all_gather_seconds", t.all_gather},
                            {"exposed_reduce_scatter_seconds", t.reduce_scatter},
                            {"norm_wait_seconds", t.norm_wait},
                            {"other_seconds", t.other},
                            {"exposed_share", Share(t.exposed(), t.step)}});
  }
  for (const UnitTimes& t : report.units) {
    out["units"].push_back({{"unit", t.unit},
                            {"all_gather_wait_seconds", t.all_gather_wait},
                            {"reduce_scatter_wait_seconds", t.reduce_scatter_wait},
                            {"forward_seconds", t.forward},
                            {"backward_seconds", t.backward}});
  }
  for (const MemoryPoint& point : report.memory) {
    out["memory"].push_back({{"step", point.step},
                             {"peak_rss_bytes", point.peak_rss_bytes},
                             {"peak_tensor_bytes", point.peak_tensor_bytes}});
  }
  for (const Advice& advice : report.advice) {
    out["advice"].push_back({{"finding", advice.finding}, {"cure", advice.cure}});
  }
  if (report.update_bytes_per_second)
    out["update_bytes_per_second"] = *report.update_bytes_per_second;
  if (report.changed_share) out["changed_share"] = *report.changed_share;
  if (report.probe_bytes_per_second) out["probe_bytes_per_second"] = *report.probe_bytes_per_second;
  return out;
}

std::string ToText(const Report& report) {
  std::string out = absl::StrFormat("%s: %s of %.3f s (median %.3f, 95 %% below %.3f)\n",
                                    report.run, text::Count(report.num_steps, "step"),
                                    report.step.mean, report.step.p50, report.step.p95);
  absl::StrAppend(&out,
                  "\nDriver: seconds\n  phase              per step      each  steps with it\n");
  for (const auto& [phase, times] : report.driver_phases) {
    absl::StrAppendFormat(&out, "  %-18s %8.3f  %8.3f  %6d of %-6d  %s\n", phase,
                          report.PerStep(times), times.mean, times.count, report.num_steps,
                          Bar(Share(report.PerStep(times), report.step.mean)));
  }
  if (!report.ranks.empty()) {
    absl::StrAppend(&out,
                    "\nTrainer ranks: seconds per training step\n  rank     step  compute  "
                    "all-gather  reduce-scatter  norm wait    other  exposed\n");
    for (const RankTimes& t : report.ranks) {
      absl::StrAppendFormat(&out,
                            "  %4d %8.3f %8.3f    %8.3f        %8.3f   %8.3f %8.3f   %5.1f %%\n",
                            t.rank, t.step, t.compute, t.all_gather, t.reduce_scatter, t.norm_wait,
                            t.other, 100 * Share(t.exposed(), t.step));
    }
  }
  if (!report.units.empty()) {
    absl::StrAppend(&out,
                    "\nUnits with the longest exposed exchange: seconds in the trace\n  unit       "
                    "                   all-gather  reduce-scatter   forward  backward\n");
    for (size_t i = 0; i < std::min(kUnitsShown, report.units.size()); ++i) {
      const UnitTimes& t = report.units[i];
      absl::StrAppendFormat(&out, "  %-28s    %8.4f        %8.4f  %8.4f  %8.4f\n", t.unit,
                            t.all_gather_wait, t.reduce_scatter_wait, t.forward, t.backward);
    }
  } else if (!report.has_trace) {
    absl::StrAppend(&out, "\nNo trace: run with --trace to see each unit's exchanges.\n");
  }
  if (report.update.count > 0) {
    absl::StrAppendFormat(&out, "\nWeight updates: %.4f s (95 %% below %.4f), pause %.6f s",
                          report.update.mean, report.update.p95, report.update_pause.mean);
    if (report.update_bytes_per_second) {
      absl::StrAppendFormat(&out, ", %.2f GB/s while bytes moved",
                            *report.update_bytes_per_second * 1e-9);
    }
    if (report.changed_share) {
      absl::StrAppendFormat(&out, ", %.1f %% of the values changed", 100 * *report.changed_share);
    }
    absl::StrAppend(&out, "\n");
    for (const auto& [phase, times] : report.update_phases) {
      absl::StrAppendFormat(&out, "  %-18s %8.4f  %s\n", phase, report.PerUpdate(times),
                            Bar(Share(report.PerUpdate(times), report.update.mean)));
    }
  }
  out += LinksToText(report);
  if (!report.memory.empty()) {
    absl::StrAppendFormat(
        &out, "\nMemory of a trainer rank, peak: %.2f GiB at step %d, %.2f at %d\n",
        report.memory.front().peak_rss_bytes / (1 << 30), report.memory.front().step,
        report.memory.back().peak_rss_bytes / (1 << 30), report.memory.back().step);
  }
  for (const auto& [transport, channels] : report.nccl_transports) {
    absl::StrAppendFormat(&out, "NCCL: %d channels via %s\n", channels, transport);
  }
  absl::StrAppend(&out, report.advice.empty() ? "\nNothing stands out.\n" : "\nAdvice\n");
  for (const Advice& advice : report.advice) {
    absl::StrAppend(&out, "  - ", advice.finding, "\n    ", advice.cure, "\n");
  }
  return out;
}

std::string ToHtml(const Report& report) {
  std::string out = absl::StrCat("<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>",
                                 Escape(report.run), " - communication</title><style>", kStyle,
                                 "</style><h1>", Escape(report.run), "</h1>");
  absl::StrAppendFormat(&out, "<p>%s of %.3f s (median %.3f s, 95 %% below %.3f s)</p>",
                        text::Count(report.num_steps, "step"), report.step.mean, report.step.p50,
                        report.step.p95);
  if (!report.advice.empty()) {
    absl::StrAppend(&out, "<h2>Advice</h2><ul>");
    for (const Advice& advice : report.advice) {
      absl::StrAppend(&out, "<li><strong>", Escape(advice.finding), "</strong><br>",
                      Escape(advice.cure), "</li>");
    }
    absl::StrAppend(&out, "</ul>");
  }
  absl::StrAppend(&out,
                  "<h2>Driver, seconds per step</h2><p>\"4 of 40\": 4 of 40 steps "
                  "have this part.</p>");
  std::vector<std::pair<std::string, std::vector<Segment>>> rows;
  for (const auto& [phase, times] : report.driver_phases) {
    rows.push_back({PhaseLabel(phase, times, report.num_steps),
                    {{absl::StrFormat("%s, each %.4f s", phase, times.mean), report.PerStep(times),
                      "#2f6fde"}}});
  }
  absl::StrAppend(&out, StackedBars(rows));
  if (!report.ranks.empty()) {
    absl::StrAppend(&out, "<h2>Trainer ranks</h2>", Legend(RankKinds()));
    rows.clear();
    for (const RankTimes& t : report.ranks) {
      rows.push_back({absl::StrCat("rank ", t.rank), SegmentsOf(t)});
    }
    absl::StrAppend(&out, StackedBars(rows));
  }
  if (!report.units.empty()) {
    absl::StrAppend(&out, "<h2>Units, seconds in the trace</h2>",
                    Legend({{"all-gather, exposed", 0, "#d1495b"},
                            {"reduce-scatter, exposed", 0, "#e69f00"},
                            {"forward", 0, "#2a9d5c"},
                            {"backward", 0, "#2f6fde"}}));
    rows.clear();
    for (size_t i = 0; i < std::min(2 * kUnitsShown, report.units.size()); ++i) {
      const UnitTimes& t = report.units[i];
      rows.push_back({t.unit,
                      {{"all-gather, exposed", t.all_gather_wait, "#d1495b"},
                       {"reduce-scatter, exposed", t.reduce_scatter_wait, "#e69f00"},
                       {"forward", t.forward, "#2a9d5c"},
                       {"backward", t.backward, "#2f6fde"}}});
    }
    absl::StrAppend(&out, StackedBars(rows));
  }
  if (report.update.count > 0) {
    absl::StrAppendFormat(&out, "<h2>Weight updates</h2><p>%.4f s each; pause %.6f s%s</p>",
                          report.update.mean, report.update_pause.mean,
                          report.update_bytes_per_second
                              ? absl::StrFormat("; %.2f GB/s while bytes moved",
                                                *report.update_bytes_per_second * 1e-9)
                              : "");
    rows.clear();
    for (const auto& [phase, times] : report.update_phases) {
      rows.push_back({phase, {{phase, report.PerUpdate(times), "#2f6fde"}}});
    }
    absl::StrAppend(&out, StackedBars(rows));
  }
  out += LinksToHtml(report);
  if (const std::string plot = MemoryPlot(report.memory); !plot.empty()) {
    absl::StrAppend(&out, "<h2>Memory of a trainer rank, peak</h2>",
                    Legend({{"resident", 0, "#2f6fde"}, {"tensors", 0, "#e69f00"}}), plot);
  }
  return out + "</html>\n";
}

}  // namespace tandem::diagnose
