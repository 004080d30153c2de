// Renders the links of a report as JSON, as text, and as parts of an HTML page.
#ifndef TANDEM_TOOLS_TANDEM_DIAGNOSE_RENDER_LINKS_H_
#define TANDEM_TOOLS_TANDEM_DIAGNOSE_RENDER_LINKS_H_

#include <nlohmann/json.hpp>
#include <string>

#include "tools/tandem/diagnose/report.h"

namespace tandem::diagnose {

nlohmann::json LinksToJson(const Report& report);
// Empty if the report has no links.
std::string LinksToText(const Report& report);
// Returns, with headings, a table of senders and receivers, coloured by rate, and a plot of the
// rates over time.
std::string LinksToHtml(const Report& report);

// Escapes text between tags.
std::string EscapeHtml(const std::string& text);

}  // namespace tandem::diagnose

#endif  // TANDEM_TOOLS_TANDEM_DIAGNOSE_RENDER_LINKS_H_
