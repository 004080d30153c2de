#include "common/weights/compare_digests.h"

#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/weights/tensor_digests.h"

namespace tandem::weights {
namespace {

absl::Status CheckNames(const DigestList& expected, const RankDigests& rank) {
  if (rank.digests->size() != expected.size() || rank.manifest->tensors_size() != expected.size()) {
    return absl::DataLossError(absl::StrCat("expected ", expected.size(), " digests, found ",
                                            rank.digests->size(), " for ",
                                            rank.manifest->tensors_size(), " tensors"));
  }
  for (int i = 0; i < expected.size(); ++i) {
    const std::string& name = expected[i].name();
    if ((*rank.digests)[i].name() == name && rank.manifest->tensors(i).name() == name) continue;
    return absl::DataLossError(absl::StrCat("digest ", i, ": expected tensor ", name, ", found ",
                                            (*rank.digests)[i].name()));
  }
  return absl::OkStatus();
}

// The ranks' digests of one tensor.
struct HeldTensor {
  DigestSum sum;  // each part once
  int num_parts = 0;
  // A copy that is not like the first one, in rank order.
  std::optional<DigestDifference> odd;
};

absl::StatusOr<HeldTensor> AddUp(int tensor, const std::vector<RankDigests>& ranks) {
  HeldTensor out;
  std::map<std::string, std::string> parts;  // digest by box
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const TensorEntry& entry = ranks[rank].manifest->tensors(tensor);
    const std::string& digest = (*ranks[rank].digests)[tensor].digest();
    // An empty box is not the whole tensor.
    const std::string box = entry.has_box() ? "box " + entry.box().SerializeAsString() : "";
    const auto [part, is_new] = parts.emplace(box, digest);
    if (is_new) {
      ASSIGN_OR_RETURN(const DigestSum held, ParseDigest(digest));
      out.sum.Add(held);
    } else if (part->second != digest && !out.odd.has_value()) {
      out.odd = {entry.name(), static_cast<int>(rank), part->second, digest};
    }
  }
  out.num_parts = static_cast<int>(parts.size());
  return out;
}

absl::StatusOr<std::optional<DigestDifference>> CompareTensor(
    const TensorDigest& expected, int tensor, const std::vector<RankDigests>& ranks) {
  ASSIGN_OR_RETURN(const HeldTensor held, AddUp(tensor, ranks));
  if (held.sum.Hex() == expected.digest()) return held.odd;
  const bool one_part = held.num_parts == 1;  // that of rank 0 is in the sum
  return DigestDifference{expected.name(), one_part ? 0 : DigestDifference::kAllRanks,
                          expected.digest(), held.sum.Hex()};
}

}  // namespace

absl::StatusOr<std::vector<DigestDifference>> CompareDigests(
    const DigestList& expected, const std::vector<RankDigests>& ranks) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    RETURN_IF_ERROR(CheckNames(expected, ranks[rank])) << "rank " << rank;
  }
  std::vector<DigestDifference> out;
  for (int i = 0; i < expected.size(); ++i) {
    ASSIGN_OR_RETURN(std::optional<DigestDifference> difference,
                     CompareTensor(expected[i], i, ranks));
    if (difference.has_value()) out.push_back(*std::move(difference));
  }
  return out;
}

}  // namespace tandem::weights
