#include "tools/tandem/diagnose/render_links.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace tandem::diagnose {
namespace {

using nlohmann::json;

constexpr size_t kLinksInText = 24;  // the slowest
constexpr size_t kNamesInTable = 24;
constexpr size_t kLinesInPlot = 12;  // the slowest
// Colours that remain distinct under red-green colour blindness.
constexpr const char* kLineColours[] = {"#2f6fde", "#e69f00", "#2a9d5c", "#cc79a7",
                                        "#56b4e9", "#d1495b", "#8c6bb1", "#999933",
                                        "#117733", "#aa4499", "#6699cc", "#888888"};

std::string Rate(double bytes_per_second) {
  return absl::StrFormat("%.*f", bytes_per_second < 1e8 ? 4 : 2, 1e-9 * bytes_per_second);
}

std::vector<const Link*> SlowestFirst(const std::vector<Link>& links, size_t most) {
  std::vector<const Link*> out;
  for (const Link& link : links) out.push_back(&link);
  std::stable_sort(out.begin(), out.end(), [](const Link* a, const Link* b) {
    return a->bytes_per_second() < b->bytes_per_second();
  });
  if (out.size() > most) out.resize(most);
  return out;
}

void AddName(const std::string& name, std::vector<std::string>& names) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

double Fastest(const std::vector<Link>& links) {
  double fastest = 0;
  for (const Link& link : links) fastest = std::max(fastest, link.bytes_per_second());
  return fastest;
}

// From amber, far slower than the fastest, to blue, equally fast; on a logarithmic scale.
std::string Background(double share) {
  const double t = std::clamp(1 + std::log10(std::max(share, 1e-3)) / 2, 0.0, 1.0);
  const auto mix = [t](int slow, int fast) {
    return static_cast<int>(std::lround(slow + (fast - slow) * t));
  };
  return absl::StrFormat("rgb(%d,%d,%d)", mix(245, 47), mix(181, 111), mix(71, 222));
}

std::string Cell(const Link& link, double fastest) {
  const double share = fastest > 0 ? link.bytes_per_second() / fastest : 0;
  const double count = static_cast<double>(link.samples.size());
  return absl::StrFormat(
      "<td class=\"heat\" style=\"background:%s;color:%s\" title=\"%s, %.1f MB and %.4f s an "
      "update\">%s<small>%s</small></td>",
      Background(share), share > 0.15 ? "white" : "black", EscapeHtml(link.transport),
      1e-6 * link.bytes() / count, link.seconds() / count, Rate(link.bytes_per_second()),
      EscapeHtml(link.transport));
}

std::string HeatTable(const std::vector<Link>& links) {
  std::vector<std::string> senders, receivers;
  // If there are many links, keeps the slowest.
  for (const Link* link : SlowestFirst(links, links.size())) {
    if (senders.size() < kNamesInTable) AddName(link->from, senders);
    if (receivers.size() < kNamesInTable) AddName(link->to, receivers);
  }
  const double fastest = Fastest(links);
  // In the order of the report.
  std::vector<std::string> rows, columns;
  for (const Link& link : links) {
    if (std::count(senders.begin(), senders.end(), link.from) > 0) AddName(link.from, rows);
    if (std::count(receivers.begin(), receivers.end(), link.to) > 0) AddName(link.to, columns);
  }
  std::string out = "<div class=\"wide\"><table class=\"links\"><tr><th>GB/s</th>";
  for (const std::string& column : columns)
    absl::StrAppend(&out, "<th>", EscapeHtml(column), "</th>");
  out += "</tr>";
  for (const std::string& row : rows) {
    absl::StrAppend(&out, "<tr><th>", EscapeHtml(row), "</th>");
    for (const std::string& column : columns) {
      // The slower, where a pair has used two transports.
      const Link* shown = nullptr;
      for (const Link& link : links) {
        if (link.from != row || link.to != column) continue;
        if (shown == nullptr || link.bytes_per_second() < shown->bytes_per_second()) shown = &link;
      }
      absl::StrAppend(&out, shown == nullptr ? "<td></td>" : Cell(*shown, fastest));
    }
    out += "</tr>";
  }
  return out + "</table></div>";
}

// Rates of the slowest links, update after update, on a logarithmic scale.
std::string RatePlot(const Report& report) {
  const std::vector<const Link*> lines = SlowestFirst(report.links, kLinesInPlot);
  int64_t first = INT64_MAX, last = INT64_MIN;
  double low = 1e300, high = 0;
  for (const Link* link : lines) {
    for (const LinkSample& sample : link->samples) {
      if (sample.bytes_per_second() <= 0) continue;
      first = std::min(first, sample.policy_version);
      last = std::max(last, sample.policy_version);
      low = std::min(low, sample.bytes_per_second());
      high = std::max(high, sample.bytes_per_second());
    }
  }
  if (first >= last) return "";
  if (report.probe_bytes_per_second) {
    low = std::min(low, *report.probe_bytes_per_second);
    high = std::max(high, *report.probe_bytes_per_second);
  }
  // Whole decades, so that the axis has labels.
  const double bottom = std::floor(std::log10(low)), top = std::ceil(std::log10(high) + 1e-9);
  const auto x = [&](int64_t version) {
    return 80 + 800.0 * static_cast<double>(version - first) / static_cast<double>(last - first);
  };
  const auto y = [&](double rate) {
    return 170 - 155 * (std::log10(rate) - bottom) / std::max(1.0, top - bottom);
  };
  std::string out = "<svg viewBox=\"0 0 900 205\" role=\"img\">";
  for (double decade = bottom; decade <= top; ++decade) {
    const double at = y(std::pow(10, decade));
    absl::StrAppendFormat(&out,
                          "<line x1=\"80\" x2=\"880\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#8884\"/>"
                          "<text x=\"72\" y=\"%.1f\" text-anchor=\"end\">%g GB/s</text>",
                          at, at, at + 4, std::pow(10, decade - 9));
  }
  absl::StrAppendFormat(&out,
                        "<text x=\"80\" y=\"195\">version %d</text>"
                        "<text x=\"880\" y=\"195\" text-anchor=\"end\">%d</text>",
                        first, last);
  if (report.probe_bytes_per_second) {
    const double at = y(*report.probe_bytes_per_second);
    absl::StrAppendFormat(&out,
                          "<line x1=\"80\" x2=\"880\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#d1495b\" "
                          "stroke-dasharray=\"6 4\"/>",
                          at, at);
  }
  std::string legend = "<p class=\"legend\">";
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string path;
    for (const LinkSample& sample : lines[i]->samples) {
      if (sample.bytes_per_second() <= 0) continue;
      absl::StrAppendFormat(&path, "%s%.1f %.1f", path.empty() ? "M" : "L",
                            x(sample.policy_version), y(sample.bytes_per_second()));
    }
    absl::StrAppendFormat(&out, "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\"/>",
                          path, kLineColours[i]);
    absl::StrAppendFormat(&legend, "<span><i style=\"background:%s\"></i>%s &#8594; %s</span>",
                          kLineColours[i], EscapeHtml(lines[i]->from), EscapeHtml(lines[i]->to));
  }
  if (report.probe_bytes_per_second) {
    legend += "<span><i style=\"background:#d1495b\"></i>the doctor's probe</span>";
  }
  return legend + "</p>" + out + "</svg>";
}

}  // namespace

std::string EscapeHtml(const std::string& text) {
  return absl::StrReplaceAll(text,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

json LinksToJson(const Report& report) {
  json out = json::array();
  for (const Link& link : report.links) {
    json updates = json::array();
    for (const LinkSample& sample : link.samples) {
      updates.push_back({{"step", sample.step},
                         {"policy_version", sample.policy_version},
                         {"bytes", sample.bytes},
                         {"seconds", sample.seconds},
                         {"gigabytes_per_second", 1e-9 * sample.bytes_per_second()}});
    }
    out.push_back({{"from", link.from},
                   {"to", link.to},
                   {"transport", link.transport},
                   {"bytes", link.bytes()},
                   {"seconds", link.seconds()},
                   {"gigabytes_per_second", 1e-9 * link.bytes_per_second()},
                   {"updates", std::move(updates)}});
  }
  return out;
}

std::string LinksToText(const Report& report) {
  if (report.links.empty()) return "";
  std::string out = absl::StrFormat(
      "\nLinks of the weight updates%s, of the median update\n"
      "  from             to               transport       updates   MB/update   s/update      "
      "GB/s\n",
      report.links.size() > kLinksInText
          ? absl::StrCat(", the slowest ", kLinksInText, " of ", report.links.size())
          : "");
  for (const Link* link : SlowestFirst(report.links, kLinksInText)) {
    const auto count = static_cast<double>(link->samples.size());
    absl::StrAppendFormat(&out, "  %-16s %-16s %-14s %8d %11.3f %10.5f %9s\n", link->from, link->to,
                          link->transport, link->samples.size(), 1e-6 * link->bytes() / count,
                          link->seconds() / count, Rate(link->bytes_per_second()));
  }
  if (report.probe_bytes_per_second) {
    absl::StrAppend(&out, "  the doctor's probe of the hosts reached ",
                    Rate(*report.probe_bytes_per_second), " GB/s\n");
  }
  return out;
}

std::string LinksToHtml(const Report& report) {
  if (report.links.empty()) return "";
  return absl::StrCat(
      "<h2>Links of the weight updates</h2><p>GB/s of the median update, from sender (rows) to "
      "receiver (columns), over the time that the receiver waited with room for more. Amber is far "
      "below the fastest.</p>",
      HeatTable(report.links), RatePlot(report));
}

}  // namespace tandem::diagnose
