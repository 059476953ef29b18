// The other file of example.cu with -DSPLIT: linked on the device, too.
__device__ float scale(float x) { return 2 * x; }
