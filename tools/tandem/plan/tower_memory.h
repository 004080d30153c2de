// TowerMemory: the memory of a vision tower's forward and backward pass
// (common/model/vision_tower.h), from the tower that a model declares.
//
//   TowerMemory tower(ledger, table, batch, LoadOf(vision, num_rows, rows_per_prompt));
//   const Size rows = tower.Forward(/*has_graph=*/true);
//   std::vector<Size> gradients = tower.Backward(gradient);
#ifndef TANDEM_TOOLS_TANDEM_PLAN_TOWER_MEMORY_H_
#define TANDEM_TOOLS_TANDEM_PLAN_TOWER_MEMORY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "common/model/model_spec.h"
#include "common/model/parameter_table.h"
#include "tools/tandem/plan/counted_ops.h"
#include "tools/tandem/plan/counted_tensor.h"
#include "tools/tandem/plan/image_load.h"
#include "tools/tandem/plan/memory_ledger.h"

namespace tandem::plan {

// Operations are those of EncodeImages(), in its order.
class TowerMemory {
 public:
  // `table` is of a model with a tower, and outlives the object, as the ledger does. `text`: for the
  // type of the elements and the kernels. The patches are a multiple of those of a row.
  TowerMemory(MemoryLedger& ledger, const model::ParameterTable& table, const CountedBatch& text,
              const ImageLoad& load);
  TowerMemory(const TowerMemory&) = delete;
  TowerMemory& operator=(const TowerMemory&) = delete;

  // Returns the rows, [num_rows, num_row_parts() * hidden]. The pixels are the caller's.
  Size Forward(bool has_graph);
  // After Forward() with a graph: frees what it saved on the way. Returns the gradients of the tower's
  // trainable parameters.
  std::vector<Size> Backward(Size gradient);

  // Bytes of the pixels that Forward() reads.
  int64_t pixel_bytes() const {
    return patches_.tokens * vision_.patch_elements() * pixel_element_bytes();
  }

 private:
  // float32 on a CPU; on a GPU of the type in which the tower reads them.
  int64_t pixel_element_bytes() const {
    return patches_.kernels == setup::Kernels::kPlain ? patches_.element_bytes : 4;
  }
  // Of their copy in the tower's type, unless they are of it already.
  int64_t TypedPixelBytes() const {
    return patches_.element_bytes == pixel_element_bytes()
               ? 0
               : patches_.Bytes(vision_.patch_elements());
  }
  CountedOps& OpsOf(const CountedBatch& batch, const model::AttentionSpec& attention,
                    CountedTape* tape);
  // Rows or patches in another order: a copy, whose gradient is one too.
  CountedTensor Reordered(const CountedTensor& x, CountedTape* tape);
  CountedTensor AddPositions(const CountedTensor& x, CountedTape* tape);
  CountedTensor Merge(const CountedTensor& in, const model::MergerParameters& at,
                      const CountedBatch& norm, CountedTape* tape);
  CountedTensor Joined(const std::vector<CountedTensor>& parts, CountedTape* tape);
  // The rows of a tower that sees tiles, and what they are made of (tile_tower_memory.cc).
  CountedTensor Tiles(CountedTape* tape);
  CountedTensor EmbedTiles(const CountedTensor& patches, CountedTape* tape);
  CountedTensor WithoutClassToken(const CountedTensor& x, CountedTape* tape);
  CountedTensor MeansOfRows(const CountedTensor& x, CountedTape* tape);
  // Those of PackRows().
  CountedTensor Packed(const CountedTensor& x, CountedTape* tape);

  MemoryLedger& ledger_;
  // Every tensor-parallel rank computes the whole tower.
  const model::ParameterTable table_;
  const model::VisionSpec& vision_;
  const ImageLoad load_;
  const CountedBatch patches_;
  const CountedBatch batch_;  // of what the layers compute: patches, and class tokens
  const CountedBatch rows_;
  CountedTape tape_;
  std::vector<std::unique_ptr<CountedOps>> ops_;  // the graph's operations refer to them
  std::vector<Size> gradients_;
  Size angles_;  // that the graph saves
  std::shared_ptr<CountedGradient> result_gradient_;
};

}  // namespace tandem::plan

#endif  // TANDEM_TOOLS_TANDEM_PLAN_TOWER_MEMORY_H_
