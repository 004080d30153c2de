// What a stage of a pass with images hands to the next one: the residual stream and, behind its tokens,
// the rows that images have yet to add to later layers (VisionSpec::deepstack_layers). So these rows'
// gradients go back to the tower from stage to stage, like the stream's, and a stage that is computed
// again has all its inputs.
//
//   at::Tensor boundary = WithLaterRows(PutImages(x, tokens, rows), rows);  // the embedding
//   const ImageBoundary in = SplitBoundary(boundary, num_tokens, tokens.numel());
//   boundary = JoinBoundary(Layer(in.x), tokens, in);
#ifndef TANDEM_SERVICES_TRAINER_FSDP_IMAGE_BOUNDARY_H_
#define TANDEM_SERVICES_TRAINER_FSDP_IMAGE_BOUNDARY_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tandem::trainer {

// Returns x [num_tokens, hidden], the embedding, and behind it what `rows`
// [num_rows, num_row_parts() * hidden] add to later layers: num_rows rows for each of these.
at::Tensor WithLaterRows(const at::Tensor& x, const at::Tensor& rows);

struct ImageBoundary {
  at::Tensor x;      // [num_tokens, hidden]
  at::Tensor rows;   // [num_rows, hidden], to be added behind the next layer; undefined: none
  at::Tensor later;  // behind the layers after it; undefined: none
};
ImageBoundary SplitBoundary(const at::Tensor& boundary, int64_t num_tokens, int64_t num_rows);

// Returns the boundary behind the layer. x: what it yields of `in.x`; tokens: int64 [num_rows], the
// tokens to which rows are added.
at::Tensor JoinBoundary(const at::Tensor& x, const at::Tensor& tokens, const ImageBoundary& in);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_IMAGE_BOUNDARY_H_
