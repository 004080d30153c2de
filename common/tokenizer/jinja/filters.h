// Filters by name, in groups that have a file each.
#ifndef TANDEM_COMMON_TOKENIZER_JINJA_FILTERS_H_
#define TANDEM_COMMON_TOKENIZER_JINJA_FILTERS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/jinja/runtime.h"

namespace tandem::tokenizer::jinja {

// `arguments` has the subject as its first positional one.
using Filter = absl::StatusOr<Value> (*)(Runtime&, const std::string& name, Arguments& arguments);
using FilterTable = std::vector<std::pair<std::string, Filter>>;

FilterTable TextFilters();      // text_filters.cc
FilterTable NumberFilters();    // text_filters.cc
FilterTable SequenceFilters();  // sequence_filters.cc

}  // namespace tandem::tokenizer::jinja

#endif  // TANDEM_COMMON_TOKENIZER_JINJA_FILTERS_H_
