// Filters by name; each group has a file of its own.
#ifndef TANDEM_COMMON_TOKENIZER_JINJA_FILTERS_H_
#define TANDEM_COMMON_TOKENIZER_JINJA_FILTERS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/jinja/runtime.h"

namespace tandem::tokenizer::jinja {

// The subject is the first positional argument.
using Filter = absl::StatusOr<Value> (*)(Runtime&, const std::string& name, Arguments& arguments);
using FilterTable = std::vector<std::pair<std::string, Filter>>;

FilterTable TextFilters();      // text_filters.cc
FilterTable NumberFilters();    // text_filters.cc
FilterTable SequenceFilters();  // sequence_filters.cc

}  // namespace tandem::tokenizer::jinja

#endif  // TANDEM_COMMON_TOKENIZER_JINJA_FILTERS_H_
