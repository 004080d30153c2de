#include "common/weights/replica_digests.h"

#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/weights/digest.h"

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

absl::StatusOr<std::optional<DigestDifference>> CompareTensor(
    const TensorDigest& expected, int tensor, const std::vector<RankDigests>& ranks) {
  const auto digest_of = [&](size_t rank) -> const std::string& {
    return (*ranks[rank].digests)[tensor].digest();
  };
  // A copy that is not like the first one, in rank order.
  std::optional<DigestDifference> odd;
  std::map<std::string, std::string> parts;  // digest by box
  DigestSum sum;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const TensorEntry& entry = ranks[rank].manifest->tensors(tensor);
    const auto [part, is_new] = parts.emplace(entry.box().SerializeAsString(), digest_of(rank));
    if (is_new) {
      ASSIGN_OR_RETURN(const DigestSum held, ParseDigest(digest_of(rank)));
      sum.Add(held);
    } else if (part->second != digest_of(rank) && !odd.has_value()) {
      odd = {expected.name(), static_cast<int>(rank), part->second, digest_of(rank)};
    }
  }
  if (sum.Hex() == expected.digest()) return odd;
  const bool one_part = parts.size() == 1;  // that of rank 0 is in the sum
  return DigestDifference{expected.name(), one_part ? 0 : DigestDifference::kAllRanks,
                          expected.digest(), sum.Hex()};
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
