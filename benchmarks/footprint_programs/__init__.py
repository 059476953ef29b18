"""gelu(α · AB + bias) in several libraries: all matrices in e4m3, α and bias in f32."""
