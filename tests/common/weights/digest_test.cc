#include "common/weights/digest.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/fakes/test_model.h"

namespace tandem::weights {
namespace {

absl::Span<const std::byte> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

TEST(Digest, IsXxh3Of128Bits) {
  // The published value of XXH3_128bits("", seed 0).
  EXPECT_EQ(HexDigest({}), "99aa06d3014798d86001c324468d497f");
}

TEST(Digest, DependsOnEveryBitAndOnPositions) {
  std::string text(1000, 'a');
  const std::string digest = HexDigest(Bytes(text));
  std::string flipped = text;
  flipped[999] ^= 1;
  EXPECT_NE(HexDigest(Bytes(flipped)), digest);
  EXPECT_NE(HexDigest(Bytes("ab" + text)), HexDigest(Bytes("ba" + text)));
}

TEST(Digest, AStreamInAnyCutsGivesTheDigestsOfTheWholes) {
  const testing::TestModel model = testing::TestModel::Small();
  const auto manifest = model.manifest();
  StreamDigests stream(manifest);
  for (int tensor = 0; tensor < manifest.tensors_size(); ++tensor) {
    const std::string bytes = model.Bytes(tensor);
    for (size_t at = 0; at < bytes.size(); at += 3) {
      const size_t size = std::min<size_t>(3, bytes.size() - at);
      stream.Add(tensor, bytes.data() + at, size, at + size == bytes.size());
    }
  }
  for (int tensor = 0; tensor < manifest.tensors_size(); ++tensor) {
    EXPECT_EQ(stream.digests()[tensor].digest(), HexDigest(Bytes(model.Bytes(tensor))));
    EXPECT_EQ(stream.digests()[tensor].name(), manifest.tensors(tensor).name());
  }
}

TEST(Digest, AModelsDigestDependsOnTheOrderOfItsTensors) {
  std::vector<common::v1::TensorDigest> digests(2);
  digests[0].set_digest(HexDigest(Bytes("a")));
  digests[1].set_digest(HexDigest(Bytes("b")));
  const std::string digest = ModelDigest(digests);
  std::swap(digests[0], digests[1]);
  EXPECT_NE(ModelDigest(digests), digest);
}

}  // namespace
}  // namespace tandem::weights
