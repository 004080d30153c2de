#include "common/tokenizer/split.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::tokenizer {
namespace {

struct Part {
  Match range;
  bool delimiter;
};

void Emit(Match range, std::vector<Match>* out) {
  if (range.begin < range.end) out->push_back(range);
}

// Joins each delimiter that follows an ordinary part to the part before it, in the order of the
// parts; `reversed` parts run from the end, so that "before" is what comes next in the text.
void EmitMerged(std::vector<Part> parts, bool reversed, std::vector<Match>* out) {
  if (reversed) std::reverse(parts.begin(), parts.end());
  std::vector<Match> merged;
  bool previous = false;
  for (const Part& part : parts) {
    if (part.delimiter && !previous && !merged.empty()) {
      if (reversed) {
        merged.back().begin = part.range.begin;
      } else {
        merged.back().end = part.range.end;
      }
    } else {
      merged.push_back(part.range);
    }
    previous = part.delimiter;
  }
  if (reversed) std::reverse(merged.begin(), merged.end());
  for (const Match& range : merged) Emit(range, out);
}

}  // namespace

absl::StatusOr<SplitBehavior> ReadSplitBehavior(const JsonNode& node) {
  ASSIGN_OR_RETURN(const std::string name, node.String());
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return node.Error(absl::StrCat("'", name,
                                 "' is not one of Removed, Isolated, MergedWithPrevious, "
                                 "MergedWithNext, Contiguous"));
}

void SplitRange(Match whole, const std::vector<Match>& delimiters, SplitBehavior behavior,
                bool invert, std::vector<Match>* out) {
  if (behavior == SplitBehavior::kIsolated) {  // the common one needs no list of parts
    size_t done = whole.begin;
    for (const Match& match : delimiters) {
      Emit({done, match.begin}, out);
      Emit(match, out);
      done = match.end;
    }
    Emit({done, whole.end}, out);
    return;
  }
  std::vector<Part> parts;
  size_t done = whole.begin;
  for (const Match& match : delimiters) {
    if (done != match.begin) parts.push_back({{done, match.begin}, invert});
    parts.push_back({match, !invert});
    done = match.end;
  }
  if (done != whole.end) parts.push_back({{done, whole.end}, invert});
  switch (behavior) {
    case SplitBehavior::kRemoved:
      for (const Part& part : parts) {
        if (!part.delimiter) Emit(part.range, out);
      }
      return;
    case SplitBehavior::kContiguous: {
      std::vector<Match> merged;
      bool previous = false;
      for (const Part& part : parts) {
        if (part.delimiter == previous && !merged.empty()) {
          merged.back().end = part.range.end;
        } else {
          merged.push_back(part.range);
        }
        previous = part.delimiter;
      }
      for (const Match& range : merged) Emit(range, out);
      return;
    }
    case SplitBehavior::kMergedWithPrevious:
      return EmitMerged(std::move(parts), false, out);
    case SplitBehavior::kMergedWithNext:
      return EmitMerged(std::move(parts), true, out);
    case SplitBehavior::kIsolated:
      return;
  }
}

}  // namespace tandem::tokenizer
